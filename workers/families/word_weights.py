"""Weights of words: expected counts are then sums of weights, so that words in all documents count little.

Families with `WeightedOptions` take them. In a fit, a token of word w weighs as the word does or, with ``log-tf-idf``,
the c tokens of w in a document weigh log(1 + c) times the word's weight together. `collapsium.pipeline.engine.setup`
computes the weights from the corpus. Files of weights may be untrusted, and are read in bounded memory.
"""

from __future__ import annotations

import csv
import io
import math
import os
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from collapsium.storage.errors import near
from collapsium.storage.io.encodings import SAVE_AS_UTF8, decode_text
from collapsium.workers.families.family import FamilyOptions
from collapsium.workers.options import Accepts, require_named

MAX_BYTES = 1 << 28  # Largest file: some ten million words


def read_weights(path: str) -> Iterator[tuple[object, object]]:
    """Yield the words and weights of a file."""
    try:
        file = Path(path)
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("expected a file (it is a folder, a pipe or a device)")
        if status.st_size > MAX_BYTES:
            raise ValueError(f"expected a file of at most {MAX_BYTES:,} bytes ({status.st_size:,} bytes)")
        with file.open("rb") as handle:
            yield from _parquet_rows(handle) if path.endswith(".parquet") else _text_rows(handle.read())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"expected a file that can be read ({error.strerror})") from None


def _parquet_rows(handle: io.BufferedReader) -> Iterator[tuple[object, object]]:
    from collapsium.storage.corpus.parquet import FAULTS
    from collapsium.storage.io.parquet import BoundedFile

    try:
        table = BoundedFile(handle).table()
        columns = [column.to_pylist() for column in table.columns]
    except FAULTS as error:
        raise ValueError(f"expected a Parquet file ({(str(error) or type(error).__name__).splitlines()[0]})") from None
    if len(columns) != 2:
        raise ValueError(f"expected two columns, a word and its weight ({len(columns)} in the file)")
    yield from zip(*columns, strict=True)


def _text_rows(content: bytes) -> Iterator[tuple[object, object]]:
    try:
        text = decode_text(content)
    except UnicodeDecodeError as error:
        fault = f"expected UTF-8 ({error.reason} at byte {error.start}); {SAVE_AS_UTF8}"
        raise ValueError(fault) from None
    first = text.partition("\n")[0]
    delimiter = next((sign for sign in "\t;|" if sign in first), ",")
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1):
            if not row:
                continue
            if len(row) != 2:
                raise ValueError(f"expected a word and its weight in each line ({len(row)} columns in line {number})")
            weight = _number(row[1])
            if weight is not None:
                yield row[0], weight
            # The first line may name the columns, but a weight such as 1,5 or 2x is no name.
            elif number > 1 or row[1].strip()[:1] in set("0123456789+-."):
                raise ValueError(f"expected a number after each word ({row[1]!r} in line {number})")
    except csv.Error as error:
        raise ValueError(f"expected a word and its weight in each line ({error})") from None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


LOG_TF_IDF = "log-tf-idf"
FORMULAS = ("idf", LOG_TF_IDF, "entropy")
MAX_WEIGHT = 1e12  # Largest weight of a word, which is far above any use; weights are scaled by their mean


class WeightTable(BaseModel):
    """Weights of words by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    words: tuple[str, ...]  # The words, each once
    weights: tuple[float, ...]  # Weight of each, 0 or more; one at least is above 0


class WeightedOptions(FamilyOptions):
    """Options of families that take weights of words."""

    weights: Annotated[
        Literal["idf", "log-tf-idf", "entropy"] | WeightTable | None,
        Accepts(str | os.PathLike[str] | Mapping[str, float] | None),
    ] = Field(
        None,
        description="weights of words, by which tokens are counted: idf, log-tf-idf or entropy, computed from the "
        "corpus, or "
        "a file with a word and its weight in each line (.tsv, .csv or .parquet; other words weigh 1). Words that "
        "occur in most documents then count little, so no list of stop words is needed. Held-out scores still count "
        "plain "
        "tokens (default: each token counts as one)",
    )

    @field_validator("weights", mode="before")
    @classmethod
    def _as_table(cls, value: object, info: ValidationInfo) -> object:
        if value is None or isinstance(value, WeightTable) or (isinstance(value, str) and value in FORMULAS):
            return value
        if isinstance(value, (str, os.PathLike)):
            require_named(info)
            path = os.fspath(value)
            try:
                return _table(read_weights(path))
            except FileNotFoundError:
                hint = near(path, FORMULAS)
                raise ValueError(f"expected {', '.join(FORMULAS)} or a file; there is no {path}{hint}") from None
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        if isinstance(value, Mapping):
            if set(value) == {"words", "weights"} and all(
                isinstance(column, (list, tuple)) for column in value.values()
            ):
                if len(value["words"]) != len(value["weights"]):
                    raise ValueError("expected as many weights as words")
                return _table(zip(value["words"], value["weights"], strict=True))
            return _table(value.items())
        raise ValueError(f"expected {', '.join(FORMULAS)}, a file, or weights by word, found {reprlib.repr(value)}")

    @property
    def log_counts(self) -> bool:
        """True if the tokens of a pair weigh log(1 + c) times the weight of the word."""
        return self.weights == LOG_TF_IDF

    def for_tasks(self) -> Self:
        """Return the options without a table of weights, as the rows of the words have them."""
        return self.model_copy(update={"weights": None}) if isinstance(self.weights, WeightTable) else self


def _table(rows: Iterable[tuple[object, object]]) -> WeightTable:
    """Check weights by word, and return them as a table."""
    weights: dict[str, float] = {}
    for word, weight in rows:
        if not isinstance(word, str) or isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise ValueError(f"expected words and numbers ({word!r} with {weight!r})")
        if word in weights:
            raise ValueError(f"expected each word once ({word!r} occurs twice)")
        if not math.isfinite(weight) or not 0.0 <= weight <= MAX_WEIGHT:
            raise ValueError(f"expected weights from 0 to {MAX_WEIGHT:g} ({weight} of {word!r})")
        weights[word] = float(weight)
    if not weights:
        raise ValueError("expected a word and its weight (there is none)")
    return WeightTable(words=tuple(weights), weights=tuple(weights.values()))
