"""Files in the folder of a comparison: its record, the results of its cells, and their runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import pydantic
from pydantic import BaseModel, Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Digest, Number, OpenRecord, check, read_record
from collapsium.storage.runs.run import MAX_RESTARTS, Run

# The table of a comparison has 32-bit integers.
Small = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
Names = tuple[str, ...]

# Required fields of the row of a family's fits
OF_FITS = (
    "cell", "family", "start", "topics", "restarts", "iterations", "samples", "score_error", "ensemble_score",
    "perplexity", "objective", "objective_error", "seconds", "cell_seconds", "topics_99", "scores", "options",
)  # fmt: skip
# Required fields of the row of another library or a classifier, which version 0.1 had
OF_BASELINES = (
    "start",
    "topics",
    "seconds",
)


class ComparisonRecord(OpenRecord):
    """The fields of `compare.json`: the options of the comparison, and digests of its corpora."""

    families: Names
    topics: tuple[Small, ...]
    start_topics: tuple[Small, ...]
    restarts: Annotated[int, Field(strict=True, ge=1, le=MAX_RESTARTS)]
    iterations: Small
    samples: Small
    sample_every: Small
    settings: dict[str, JsonObject]
    seed: Annotated[int, Field(strict=True)]
    corpus: Digest
    heldout: Digest | None
    unseen: Digest | None = None


class CellRow(OpenRecord):
    """The result of a cell: a row of the table, for a family's fits.

    Comparisons of version 0.1 also have rows of other methods, with ``baseline``, and of documents scored given labels.

    Further fields are values of metrics, which have ``definitions``: by name, the definition and its source.
    """

    __pydantic_extra__: dict[str, Number | None]

    cell: str | None = None
    score: Number | None
    family: str | None = None
    baseline: str | None = None
    start: str = ""
    topics: Small | None = None
    restarts: Small = 1
    iterations: Small = 0
    samples: Small = 0
    score_error: Number | None = None
    ensemble_score: Number | None = None
    perplexity: Number | None = None
    objective: Number | None = None
    objective_error: Number | None = None
    seconds: Number | None = None
    cell_seconds: Number | None = None
    topics_99: Number | None = None
    npmi: Number | None = None
    diversity: Number | None = None
    scores: tuple[Number, ...] = ()
    options: str | JsonObject = ""
    words: tuple[tuple[str, ...], ...] = ()
    classified: JsonObject | None = None
    definitions: dict[str, tuple[str, str]] = Field(default_factory=dict)
    tuned: JsonObject | None = None

    @pydantic.model_validator(mode="after")
    def _fields_of_its_kind(self) -> CellRow:
        for name in OF_FITS if self.baseline is None else OF_BASELINES:
            if name not in self.model_fields_set:
                raise ValueError(f"expected the field {name!r}")
        if self.baseline is not None:
            return self
        required = (self.cell, self.score, self.ensemble_score, self.perplexity, self.seconds, self.topics_99)
        if not self.family or any(value is None for value in required):
            raise ValueError("expected a cell, a family, its score, perplexity, seconds and topics")
        try:
            is_object = isinstance(self.options, str) and isinstance(json.loads(self.options), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise ValueError("expected options as an object of JSON in a text")
        return self


class CellRecord(BaseModel):
    """The fields of a cell's record."""

    row: CellRow


RECORD, KIND, CELL_KIND, VERSION = "compare.json", "collapsium-comparison", "collapsium-comparison-cell", 3
TABLE, TEXT = "table.parquet", "table.md"
SERIES_FILE = "series.parquet"  # The iterations of all fits, which version 0.1 wrote
CELLS, RUNS, SUFFIX = "cells", "runs", ".json"
REWRITE_HINT = "; the same `collapsium compare` writes it anew"
PARTS = ("train", "heldout")  # Folders of the corpora that the comparison has split off
RANDOM = "random"  # Start of fits from a random state, without varied options
SAMPLE = "sample"  # Folder of the documents on which the families are compared, if these are not all documents


def record_of(folder: Folder) -> JsonObject:
    """Read the record of a comparison: its options and the digests of its corpora."""
    try:
        record = read_record(folder, RECORD, KIND, VERSION, oldest=VERSION)
    except DamagedError as error:
        if error.where != "field 'version'":
            raise
        raise DamagedError(error.path, f"{error.expected}; compare again, into a new folder", error.where) from None
    check(ComparisonRecord, record, f"{folder.url}/{RECORD}")
    return record


def cells_done(folder: Folder) -> list[str]:
    """Return the names of the finished cells, such as ``lda-40``, in order."""
    return [name.removesuffix(SUFFIX) for name in (folder / CELLS).names() if name.endswith(SUFFIX)]


def row_of(folder: Folder, name: str) -> JsonObject:
    """Read the result of a finished cell."""
    cells = folder / CELLS
    try:
        record = read_record(cells, name + SUFFIX, CELL_KIND, VERSION, oldest=VERSION)
        check(CellRecord, record, f"{cells.url}/{name}{SUFFIX}")
    except DamagedError as error:
        hint = f"{error.expected}; remove the file, and the cell is measured again"
        raise DamagedError(error.path, hint, error.where) from None
    row: JsonObject = record["row"]
    return row


def runs_there(folder: Folder) -> Iterator[Run]:
    """Yield the runs of a comparison that have a record: one for each cell or, with warm starts, for each fit."""
    runs = folder / RUNS
    for cell in runs.names():
        run = Run((runs / cell).url)
        if run.exists():
            yield run
            continue
        for number in (runs / cell).names():
            fit = Run((runs / cell / number).url)
            if fit.exists():
                yield fit
