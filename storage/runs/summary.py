"""Summaries of a model's training documents: `summary.json`, beside `model.json`, which needs no corpus to be read."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, check, digest_of, dump, read_record
from collapsium.storage.runs.model import ModelRecord

RECORD = "summary.json"
KIND = "collapsium-summary"
# Versions with `mean` of topics (where there are labels), with `dates`, with `segmented`, and with none of these.
# Records of version 1 have no digest.
MEANS, DATED, SEGMENTED, UNSEGMENTED = 5, 4, 3, 2

MIN_HOUR, MAX_HOUR = -17_259_888, 70_389_527  # since 1970, of the years 1 and 9999

Share = Annotated[float, Field(strict=True, ge=0.0, le=1e300)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ExampleDocument(_Part):
    """A training document that is an example of some topic.

    ``proportions`` are its largest (topic's id, share), falling; ``title`` is None where the corpus has none.
    """

    id: str
    title: str | None
    tokens: Share
    proportions: tuple[tuple[Count, Share], ...]


class Example(_Part):
    """A document as an example of a topic.

    ``document`` is a place among the summary's ``examples``, ``words`` the ids of the words of it that the topic
    explains most of, falling.
    """

    document: Count
    share: Share
    words: tuple[Count, ...]


class TopicSummary(_Part):
    """A topic among the training documents: in how many it has the largest share, and those where that is largest.

    ``mean`` is its mean proportion over all documents; None where the corpus has no labels to compare with it.
    """

    id: Count
    documents: Count
    examples: tuple[Example, ...]
    mean: Share | None = None


class LabelSummary(_Part):
    """The documents of a label's value: how many, and their mean proportions, (topic's id, share), falling."""

    value: str
    documents: Count
    proportions: tuple[tuple[Count, Share], ...]


class FieldSummary(_Part):
    """A field of labels: its values in the most documents, and how many others it has.

    ``left_out`` is None where there are so many values that they were not counted.
    """

    field: str
    values: tuple[LabelSummary, ...]
    left_out: Count | None


class SegmentedDocument(_Part):
    """A training document of many segments, and its largest topics along them.

    ``distance`` is the mean Hellinger distance between neighbouring segments; ``shares`` has a row for each of
    ``topics``, falling, of its shares at each segment or, of many segments, in runs of neighbours.
    """

    id: str
    title: str | None
    segments: Count
    distance: Share
    topics: tuple[Count, ...]
    shares: tuple[tuple[Share, ...], ...]


class DatesSummary(_Part):
    """Sums of the training documents' proportions by date, from which the topics' shares of any period follow.

    A date is ``hour``, hours since 1970 to its beginning, and ``unit``, how exact it is. ``documents`` counts those
    that have it. With w the tokens of a document and theta its proportions, ``tokens`` and ``squares`` are the sums of
    w and of w^2, and ``shares``, ``weighted`` and ``squared`` those of w theta, w^2 theta and w^2 theta^2: a row a date
    and a column for each of ``topics``, as float32, little-endian, row by row in base64. The rest counts documents:
    those without a date, with one that could not be read (``examples`` are some), whose day and month could be told
    apart by other dates alone (``ordered``, by ``order``) or not at all (``ambiguous``, which are exact to the year),
    with numbers that were read as Unix times, and with years of two digits.
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
        """Write a table of sums."""
        return base64.b64encode(np.ascontiguousarray(table, dtype="<f4").tobytes()).decode()


class SummaryRecord(_Part):
    """What `summary.json` says; ``model`` is the digest of what `model.json` says.

    ``segmented`` are the documents of most segments; a record without any is of version 2, which has no such field.
    ``dates`` is None where the documents have none; a record with dates is of version 4, and one
    with means of topics of version 5.
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
    """Read the summary in a model's folder.

    Parameters
    ----------
    folder : Folder
        The model's folder.
    record : ModelRecord
        What the model says of itself.

    Returns
    -------
    SummaryRecord or None
        None where there is none.

    Raises
    ------
    DamagedError
        It does not hold what its format asks for, or is another model's.
    """
    if not folder.exists(RECORD):
        return None
    path = f"{folder.url}/{RECORD}"
    found = parse_summary(read_record(folder, RECORD, KIND, MEANS, oldest=UNSEGMENTED), path)
    if found.model != digest_of_model(record):
        raise DamagedError(path, "it is the summary of another model")
    words = record.vocabulary.words
    for topic in found.topics:
        if any(word >= words for one in topic.examples for word in one.words):
            raise DamagedError(path, f"expected ids of words below {words}", "field 'topics'")
    return found


def parse_summary(record: JsonObject, path: str) -> SummaryRecord:
    """Check what a summary says, which may be anybody's.

    Parameters
    ----------
    record : dict
        The file's content, without its digest.
    path : str
        The file's name, for errors.

    Returns
    -------
    SummaryRecord
        The summary.

    Raises
    ------
    DamagedError
        It does not hold what its format asks for.
    """
    found = check(SummaryRecord, record, path)
    if any(one.document >= len(found.examples) for topic in found.topics for one in topic.examples):
        raise DamagedError(path, f"expected documents below {len(found.examples)}", "field 'topics'")
    for one in found.segmented:
        places = {len(shares) for shares in one.shares}
        if len(one.shares) != len(one.topics) or len(places) != 1 or not 0 < max(places) <= one.segments:
            raise DamagedError(
                path, "expected a row of shares for each topic, one or less a segment", "field 'segmented'"
            )
    if found.dates is not None:
        _check_dates(found.dates, path)
    return found


def _check_dates(dates: DatesSummary, path: str) -> None:
    count = len(dates.hour)
    if any(len(one) != count for one in (dates.unit, dates.documents, dates.tokens, dates.squares)):
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
