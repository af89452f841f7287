"""Records of a comparison as they are read: their fields, types and bounds, as anyone may have written the folder."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.io.records import Count, Digest, Number
from collapsium.storage.runs.event_records import MAX_RESTARTS

Small = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]  # as the table has it, in 32 bits
Names = tuple[str, ...]

OF_FITS = (
    "cell", "family", "start", "topics", "restarts", "iterations", "samples", "score_error", "ensemble_score",
    "perplexity", "objective", "objective_error", "seconds", "cell_seconds", "topics_99", "scores", "options",
)  # fmt: skip
"""Fields that each row of a family's fits has."""
OF_BASELINES = ("start", "topics", "seconds")
"""Fields that each row of another library or of a classifier has."""


class _Fields(BaseModel):
    """A part of a record, beside whose fields others may stand."""

    model_config = ConfigDict(extra="allow")


class ComparisonRecord(_Fields):
    """What `compare.json` says: what was asked for, and the digests of the corpora; see `options.CompareOptions`."""

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
    unseen: Digest | None


class ClassFigures(_Fields):
    """How well a value of a field was predicted."""

    value: str | Number
    precision: Number
    recall: Number
    f1: Number
    support: Count


class Classified(_Fields):
    """How well a field was predicted."""

    field: str
    classes: tuple[ClassFigures, ...]


class CellRow(_Fields):
    """What a cell came to: a row of the table, of a family's fits or, with ``baseline``, of something beside them."""

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
    documents: Count = 0
    labelled: Count = 0
    unknown: Count = 0
    accuracy: Number | None = None
    macro_f1: Number | None = None
    micro_f1: Number | None = None
    predict_seconds: Number | None = None
    scores: tuple[Number, ...] = ()
    options: str | JsonObject = ""
    words: tuple[tuple[str, ...], ...] = ()
    classified: Classified | None = None
    tuned: JsonObject | None = None

    @pydantic.model_validator(mode="after")
    def _fields_of_its_kind(self) -> CellRow:
        for name in OF_FITS if self.baseline is None else OF_BASELINES:
            if name not in self.model_fields_set:
                raise ValueError(f"expected the field {name!r}")
        if self.baseline is not None:
            return self
        whole = (self.cell, self.score, self.ensemble_score, self.perplexity, self.seconds, self.topics_99)
        if not self.family or any(one is None for one in whole):
            raise ValueError("expected a cell, a family, its score, perplexity, seconds and topics")
        if not _is_object(self.options):
            raise ValueError("expected options as an object of JSON in a text")
        return self


def _is_object(text: Any) -> bool:
    """Return whether a text is an object of JSON."""
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class CellRecord(BaseModel):
    """What the record of a cell says."""

    row: CellRow
