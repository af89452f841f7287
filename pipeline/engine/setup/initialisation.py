"""Initialisation: proportions of documents, from which the first responsibilities of a fit are made.

They are read from a file, or computed from the corpus. All tokens of a document begin with its proportions; the topics'
words follow from them. The mechanism is the same as for a warm start, with topics that are even over all words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models.registry import load_family, make_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OptionError, suggestion
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.readers.proportions_file import DocumentProportions
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.family import COMPUTED_STARTS, FILE_START, RANDOM_START, FamilyOptions

ENDING = ".parquet"
MIN_CLUSTERED = 2  # Documents for each topic from which fits begin from clusters: fewer would leave topics without any
LEAST_NOISE = 0.1  # Smallest weight of a topic, where the largest is 1 more, in a document whose proportions are drawn


@dataclass(frozen=True)
class StartSource:
    """The start of a fit, as `run.json` records it."""

    kind: str  # `FILE_START`, or one of `COMPUTED_STARTS`
    # A file's address, and the SHA-256 of its bytes; empty for others
    url: str = ""
    digest: str = ""
    strength: float = 0.0  # Weight of the initialisation in the documents' priors, in tokens
    usual: bool = False  # Whether it is the family's default, because no option names one; not recorded

    @classmethod
    def of(cls, start: str, strength: float = 0.0) -> StartSource | None:
        """Return the start that an option names; None for a random one."""
        from collapsium.storage.readers import proportions_file

        if start == RANDOM_START:
            if strength:
                raise OptionError("needs `init`: random proportions are not a prior", "init_strength")
            return None
        if start in COMPUTED_STARTS:
            return cls(start, strength=strength)
        if not start.lower().endswith(ENDING):
            names = (RANDOM_START, *COMPUTED_STARTS)
            raise OptionError(
                f"expected {', '.join(names)} or a file of proportions that ends in {ENDING}, found "
                f"{start!r}{suggestion(start, names)}",
                "init",
            )
        return cls(FILE_START, _address(start), proportions_file.digest_of_file(start), strength)

    @classmethod
    def of_fit(
        cls,
        start: str | None,
        strength: float,
        family: str,
        config: FamilyOptions,
        documents: int,
        *,
        elsewhere: bool,
    ) -> StartSource | None:
        """Return the start of a new fit, which is the family's usual one where none is named.

        It is random in corpora of few documents, and `elsewhere`: where the schedule keeps no responsibilities, or
        another run is begun from.
        """
        if start is not None or strength:
            return cls.of(start or RANDOM_START, strength)
        if elsewhere or documents < MIN_CLUSTERED * (most_topics(config) or 1):
            return None
        usual = cls.of(make_family(family, config).usual_start())
        return None if usual is None else replace(usual, usual=True)

    def require(self, family: str, config: FamilyOptions) -> None:
        """Raise `OptionError` if a family with these options does not accept the initialisation."""
        starts = load_family(family).starts
        if not starts:
            raise OptionError(f"family '{family}' starts only at random, found {self.kind}", "init")
        if self.kind not in starts:
            able = " or ".join(
                (RANDOM_START, *(f"a {ENDING} file" if start == FILE_START else start for start in starts))
            )
            raise OptionError(f"expected {able} with family '{family}', found {self.kind}", "init")
        if self.strength and not make_family(family, config).keeps_start():
            raise OptionError(
                f"'{family}' with these options cannot use an initialisation as a prior; lda and hdp with active "
                "responsibilities can",
                "init_strength",
            )
        if self.kind != FILE_START and getattr(config, "seeds", None):
            raise OptionError(
                f"the topics of '{self.kind}' are not the topics of the seeds; seeds need a random start or a file",
                "init",
            )

    def record(self) -> dict[str, object]:
        """Return the initialisation as `run.json` records it."""
        record: dict[str, object] = {"kind": self.kind}
        if self.kind == FILE_START:
            record |= {"url": self.url, "digest": self.digest}
        return record | ({"strength": self.strength} if self.strength else {})

    @classmethod
    def from_record(cls, folder: Folder, record: JsonObject | None) -> StartSource | None:
        """Return the start that the `run.json` of a folder names; None where it names none."""
        if record is None:
            return None
        strength = float(record.get("strength", 0.0))
        if record["kind"] != FILE_START:
            return cls(record["kind"], strength=strength)
        return cls(FILE_START, recorded_url(folder, record["url"]), record["digest"], strength)


def _address(path: str) -> str:
    """Return the address of a file that is valid on every machine with the same storage."""
    parent, _, name = path.replace("\\", "/").rpartition("/")
    return f"{Folder(parent or ('/' if path.startswith('/') else '.')).address}/{name}"


@dataclass(frozen=True)
class ShardProportions:
    """Proportions of a shard's documents, from which its first local state is made; see `tasks.WarmSource`."""

    proportions: DocumentProportions  # A row for each document; of those without proportions they are drawn
    # Tokens with which the proportions stay in the documents' priors, except those that are drawn
    strength: float = 0.0

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        proportions = self.proportions
        return proportions.offsets.nbytes + proportions.topics.nbytes + proportions.shares.nbytes

    def local(self, shard: AnyShard) -> Arrays | None:  # noqa: ARG002
        """Return None: there is no saved local state."""
        return None

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Return the documents' proportions; topics are even over the shard's words."""
        proportions = self.proportions
        theta = np.zeros((proportions.documents, proportions.width), dtype=np.float32)
        theta[np.repeat(np.arange(proportions.documents), np.diff(proportions.offsets)), proportions.topics] = (
            proportions.shares
        )
        unknown = np.flatnonzero(~proportions.known & (shard.lengths > 0))
        if unknown.size:
            drawn = stream.generator().random((unknown.size, proportions.width)) + LEAST_NOISE
            theta[unknown] = drawn / drawn.sum(axis=1, keepdims=True)
        arrays = {"document_topic": theta}
        if self.strength:
            arrays["document_strength"] = np.where(proportions.known, self.strength, 0.0).astype(np.float32)
        return arrays


@dataclass(frozen=True)
class Start:
    """The proportions from which a fit begins."""

    shards: Sequence[ShardProportions]  # The proportions of each shard
    topics: int  # Number of their topics
    notices: tuple[str, ...] = ()  # Lines for the user: documents without proportions, topics that are left out


def most_topics(config: FamilyOptions) -> int | None:
    """Return the largest number of topics that a fit may have; None where its options set no limit."""
    topics = getattr(config, "topics", None)
    # Options such as names of topics set no limit to their number.
    return topics if isinstance(topics, int) else None


def computed_topics(config: FamilyOptions) -> int:
    """Return the number of topics of a computed start."""
    topics = most_topics(config)
    return int(getattr(config, "init_topics", 1)) if topics is None else topics


def begin_from(
    corpus: Corpus,
    proportions: Sequence[DocumentProportions],
    topics: int | None,
    strength: float = 0.0,
    max_topics: int | None = None,
) -> Start:
    """Return the start of a fit from the proportions of the documents of each shard."""
    shards = corpus.manifest.shards
    if [shard.documents for shard in proportions] != [shard.documents for shard in shards]:
        raise MismatchError(f"{corpus.url}: expected proportions of the documents of each shard")
    width = max((shard.width for shard in proportions), default=0)
    totals: npt.NDArray[np.float64] = np.zeros(width)
    for shard_proportions in proportions:
        totals[: shard_proportions.width] += shard_proportions.totals()
    columns, notices = _columns(totals, topics, max_topics)
    if topics is not None and width < topics:
        notices = (f"begins from {width} topics; the other {topics - width} begin empty",)
    retained = int(columns.max(initial=-1)) + 1
    if columns.size != retained or not np.array_equal(columns, np.arange(width)):
        proportions = [shard.in_columns(columns[: shard.width]) for shard in proportions]
    sized = (DocumentProportions(shard.offsets, shard.topics, shard.shares, retained) for shard in proportions)
    return Start([ShardProportions(shard, strength) for shard in sized], retained, notices)


def _columns(
    totals: npt.NDArray[np.float64], topics: int | None, max_topics: int | None
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the fit's topic for each topic of the proportions, -1 for those left out, and a notice of these."""
    if topics is not None and totals.size <= topics:
        return np.arange(totals.size), ()
    used = np.flatnonzero(totals > 0.0)
    chosen = used
    notices: tuple[str, ...] = ()
    limit = max_topics if topics is None else topics
    if limit is not None and used.size > limit:
        chosen = np.sort(used[np.argsort(-totals[used], kind="stable")[:limit]])
        share = float(totals[chosen].sum() / totals.sum())
        notices = (f"begins from the {limit} largest of {used.size} topics ({share:.1%} of the proportions)",)
    columns = np.full(totals.size, -1, dtype=np.int64)
    columns[chosen] = np.arange(chosen.size)
    return columns, notices


def start_of_file(source: StartSource, corpus: Corpus, config: FamilyOptions) -> Start:
    """Return the start that a file gives."""
    from collapsium.storage.readers import proportions_file

    try:
        same = proportions_file.digest_of_file(source.url) == source.digest
    except AbsentError as error:
        raise AbsentError(
            f"{error} (the run begins from it, and has no checkpoint yet); put it back, or start a new run"
        ) from None
    if not same:
        raise MismatchError(f"{source.url}: it is not the file that the run was to begin from; start a new run")
    file = proportions_file.read_proportions(source.url)
    file.require_documents(corpus.manifest.documents)
    proportions, first, matched = [], 0, 0
    for reference in corpus.references:
        last = first + reference.record.documents
        places = np.arange(first, last) if file.ids is None else file.places(reference.ids())
        matched += int((places >= 0).sum())
        proportions.append(file.proportions.take(places))
        first = last
    if not matched and file.ids is not None:
        some = ", ".join(map(repr, file.ids.slice(0, 3).to_pylist()))
        raise InputError(
            file.path,
            f"expected ids of the documents of {corpus.url}, found none among {len(file.ids):,} (such as {some})",
        )
    unknown = sum(int((~part.known).sum()) for part in proportions)
    start = begin_from(corpus, proportions, most_topics(config), source.strength, config.max_start_topics)
    notices = [f"{source.url}: {text}" for text in start.notices]
    if unknown:
        notices.append(
            f"{source.url}: {unknown:,} of {corpus.manifest.documents:,} documents have no proportions there, and "
            "begin at random"
        )
    return Start(start.shards, start.topics, tuple(notices))
