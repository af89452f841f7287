"""Summaries of a model's training documents: `summary.json`, which is read without the corpus."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Record, check, digest_of, dump, read_record
from collapsium.storage.runs.model import ModelRecord

RECORD = "summary.json"
KIND = "collapsium-summary"
# Versions with `mean` of topics (for labelled corpora), with `dates`, with `segmented`, and without these
MEANS, DATED, SEGMENTED, UNSEGMENTED = 5, 4, 3, 2

MIN_HOUR, MAX_HOUR = -17_259_888, 70_389_527  # First and last hour of the years 1 to 9999, since 1970

Share = Annotated[float, Field(strict=True, ge=0.0, le=1e300)]


class ExampleDocument(Record):
    """A training document that is an example of some topic.

    ``proportions`` has its largest pairs of topic id and share, in descending order.
    """

    id: str
    title: str | None
    tokens: Share
    proportions: tuple[tuple[Count, Share], ...]


class Example(Record):
    """A document as an example of a topic.

    ``document`` is an index into the summary's ``examples``. ``words`` has the ids of its words with the most tokens in
    the topic, in descending order.
    """

    document: Count
    share: Share
    words: tuple[Count, ...]


class TopicSummary(Record):
    """The number of training documents in which a topic has the largest share, and examples of them.

    ``mean`` is its mean proportion over all documents; None for a corpus without labels.
    """

    id: Count
    documents: Count
    examples: tuple[Example, ...]
    mean: Share | None = None


class LabelSummary(Record):
    """The documents with a label: their number, and their mean proportions, in descending order."""

    value: str
    documents: Count
    proportions: tuple[tuple[Count, Share], ...]


class FieldSummary(Record):
    """A field of labels: its most frequent values, and the number of others.

    ``left_out`` is None if there are too many values to count.
    """

    field: str
    values: tuple[LabelSummary, ...]
    left_out: Count | None


class SegmentedDocument(Record):
    """A training document with many segments, and its largest topics along them.

    ``distance`` is the mean Hellinger distance between adjacent segments. ``shares`` has a row for each of ``topics``,
    in descending order: its share in each segment or, for many segments, in groups of adjacent ones.
    """

    id: str
    title: str | None
    segments: Count
    distance: Share
    topics: tuple[Count, ...]
    shares: tuple[tuple[Share, ...], ...]


class DatesSummary(Record):
    """Sums of the training documents' proportions by date, from which the topics' shares in any period follow.

    A date has its first ``hour``, since 1970, and the ``unit`` of its resolution. ``documents`` counts the documents of
    each date. With w the tokens of a document and theta its proportions, ``tokens`` and ``squares`` are the sums of w
    and w^2; ``shares``, ``weighted`` and ``squared`` sums of w theta, w^2 theta and w^2 theta^2, with a row per date
    and a column for each of ``topics``: float32, little-endian, in row order, as base64. The other fields count
    documents: ``missing`` without a date; ``unreadable``, with ``examples``; ``ordered``, whose order of day and month
    follows from other dates, by ``order``; ``ambiguous``, which are exact to the year; ``unix`` with Unix times; and
    ``short_years`` with years of two digits.
    """

    topics: tuple[Count, ...]
    hour: tuple[int, ...]
    unit: tuple[Literal["hour", "day", "month", "year"], ...]
    documents: tuple[Count, ...]
    tokens: tuple[Share, ...]
    squares: tuple[Share, ...]
    shares: str
    weighted: str
    squared: str
    missing: Count
    unreadable: Count
    examples: tuple[str, ...]
    ambiguous: Count
    ordered: Count
    order: Literal["day first", "month first", ""]
    unix: Count
    short_years: Count

    def table(self, name: str) -> npt.NDArray[np.float64]:
        """Return ``shares``, ``weighted`` or ``squared``, shape (dates, topics)."""
        data = base64.b64decode(getattr(self, name), validate=True)
        return np.frombuffer(data, dtype="<f4").astype(np.float64).reshape(len(self.hour), len(self.topics))

    @staticmethod
    def packed(table: npt.NDArray[np.float64]) -> str:
        """Return a table of sums in base64."""
        return base64.b64encode(np.ascontiguousarray(table, dtype="<f4").tobytes()).decode()


class SummaryRecord(Record):
    """The fields of `summary.json`; ``model`` is the digest of the model's record.

    ``segmented`` has the documents with the most segments; a record without any has version 2, which has no such field.
    ``dates`` is None for documents without dates. A record with dates has version 4, one with means of topics version
    5.
    """

    format: str = KIND
    version: int = UNSEGMENTED
    model: str
    documents: Count
    topics: tuple[TopicSummary, ...]
    examples: tuple[ExampleDocument, ...]
    fields: tuple[FieldSummary, ...]
    segmented: tuple[SegmentedDocument, ...] = ()
    dates: DatesSummary | None = None


def digest_of_model(record: ModelRecord) -> str:
    """Return the digest by which a summary names its model."""
    return digest_of(record.model_dump(mode="json", exclude={"vocabulary", "summarised"}))


def write_summary(folder: Folder, record: SummaryRecord) -> None:
    """Write a summary into a model's folder."""
    absent = {name for name in ("segmented", "dates") if not getattr(record, name)}
    text = record.model_dump(mode="json", exclude=absent)
    for topic in text["topics"]:
        if topic["mean"] is None:
            del topic["mean"]
    folder.write(RECORD, dump(text))


def read_summary(folder: Folder, record: ModelRecord) -> SummaryRecord | None:
    """Read the summary in a model's folder."""
    if not folder.exists(RECORD):
        return None
    path = f"{folder.url}/{RECORD}"
    summary = parse_summary(read_record(folder, RECORD, KIND, MEANS, oldest=UNSEGMENTED), path)
    if summary.model != digest_of_model(record):
        raise DamagedError(path, "it is the summary of another model")
    words = record.vocabulary.words
    for topic in summary.topics:
        if any(word >= words for example in topic.examples for word in example.words):
            raise DamagedError(path, f"expected ids of words below {words}", "field 'topics'")
    return summary


def parse_summary(record: JsonObject, path: str) -> SummaryRecord:
    """Check a summary, which may be untrusted."""
    summary = check(SummaryRecord, record, path)
    if any(example.document >= len(summary.examples) for topic in summary.topics for example in topic.examples):
        raise DamagedError(path, f"expected documents below {len(summary.examples)}", "field 'topics'")
    for document in summary.segmented:
        places = {len(shares) for shares in document.shares}
        if len(document.shares) != len(document.topics) or len(places) != 1 or not 0 < max(places) <= document.segments:
            raise DamagedError(
                path, "expected a row of shares for each topic, one or less a segment", "field 'segmented'"
            )
    dates = summary.dates
    if dates is None:
        return summary
    count = len(dates.hour)
    if any(len(sums) != count for sums in (dates.unit, dates.documents, dates.tokens, dates.squares)):
        raise DamagedError(path, f"expected {count} of each, as there are dates", "field 'dates'")
    if any(not MIN_HOUR <= hour <= MAX_HOUR for hour in dates.hour):
        raise DamagedError(path, "expected hours of the years 1 to 9999", "field 'dates.hour'")
    for name in ("shares", "weighted", "squared"):
        try:
            sound = bool((np.isfinite(dates.table(name))).all())
        except ValueError:
            sound = False
        if not sound:
            raise DamagedError(
                path, f"expected {count} x {len(dates.topics)} numbers in base64", f"field 'dates.{name}'"
            )
    return summary
