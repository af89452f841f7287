"""Warm starts: a fit that begins from another run's proportions and topics, whatever that run's family is.

Where that run is of the same family, a shard whose file is the same begins from the very local state that the run kept
of it, and what was learned of hyperparameters goes on from where it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import FamilyOptions, Resumable
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family, make_options
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.recorded_urls import recorded_url
from collapsium.storage.io.records import digest_of
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.members import restarts_of
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, GlobalState, Rows

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
CELLS = 1 << 20  # probabilities that are made at a time


@dataclass(frozen=True)
class WarmSource:
    """The model that a fit begins from.

    Attributes
    ----------
    url : str
        Folder of the model or, where the run had none, of its checkpoint.
    digest : str
        Of what it says of itself, with the digests of its parts.
    topics : int
        How many topics of it have tokens.
    local_states : str, optional
        Digest of the local states that its run keeps in a checkpoint of the same iteration; empty where there are none.
    members : tuple of WarmSource, optional
        Of an ensemble of restarts, each member; member k of as many restarts begins from member k.
    """

    url: str
    digest: str
    topics: int
    local_states: str = ""
    members: tuple[WarmSource, ...] = ()

    @classmethod
    def of(cls, run: str | os.PathLike[str], restarts: int = 0) -> WarmSource:
        """Return the model of a run for a fit of so many restarts; of an ensemble of as many, those of all members."""
        members = restarts_of(run)
        if restarts and len(members) == restarts:
            sources = tuple(cls._of(one.folder.url) for _, one in members)
            return replace(sources[0], members=sources)
        return cls._of(run)

    def member(self, number: int) -> WarmSource:
        """Return what member `number` of an ensemble begins from."""
        return self.members[number] if self.members else self

    @classmethod
    def _of(cls, run: str | os.PathLike[str]) -> WarmSource:
        model = Model(run)
        family = model.record.family
        if load_family(family).corpus_kind != DOCUMENTS:
            raise OptionError(f"`warm` {model.folder.url}: family '{family}' has no topics over words to begin from")
        kept = _kept(model)
        digest = digest_of(model.record.model_dump(mode="json"))
        return cls(model.folder.address, digest, len(_occupied(model)[0]), "" if kept is None else kept.digest)

    def record(self) -> dict[str, Any]:
        """Return what `run.json` shall say."""
        found: dict[str, Any] = {"url": self.url, "digest": self.digest, "topics": self.topics}
        found.update({"local_states": self.local_states} if self.local_states else {})
        return {**found, "members": [one.record() for one in self.members]} if self.members else found

    @classmethod
    def from_record(cls, folder: Folder, record: Mapping[str, Any]) -> WarmSource:
        """Return the source that the `run.json` of a folder names."""
        members = tuple(cls.from_record(folder, one) for one in record.get("members", ()))
        return cls(
            recorded_url(folder, record["url"]),
            record["digest"],
            record["topics"],
            record.get("local_states", ""),
            members,
        )


@dataclass(frozen=True)
class KeptLocal:
    """Where a local state lies that a run has kept of a shard: folder of the checkpoint, part, and its digest."""

    url: str
    part: str
    digest: str

    def read(self, model: Model, shard: AnyShard) -> Arrays:
        """Read it, and check that it is of the model and of the shard."""
        local = Checkpoint(Folder(self.url)).read(self.part, self.digest)
        model.checks.local(local, shard, f"{self.url}/{self.part}")
        return local


@dataclass(frozen=True)
class _Kept:
    """The local states of a run by the digests of their shards' files, and a digest of them all."""

    states: dict[str, KeptLocal]
    digest: str


@dataclass(frozen=True)
class WarmReference:
    """Where to read what a model knows of a shard.

    Attributes
    ----------
    url : str
        Folder of the model.
    number : int or None
        Its number of the shard; None where it was fitted to other documents, whose proportions are then fitted with the
        topics held fixed.
    topics : tuple of int
        Columns of its topics that have tokens, or of the largest of them.
    share : float
        Of the tokens, that of these topics.
    columns : int, optional
        How many topics the fit has, where each of these stays the column that it was; 0 where they stand side by side.
    kept : KeptLocal, optional
        The local state that the model's run keeps of this very shard.
    """

    url: str
    number: int | None
    topics: tuple[int, ...]
    share: float
    columns: int = 0
    kept: KeptLocal | None = None

    def local(self, shard: AnyShard) -> Arrays | None:
        """Read the local state of the shard to go on from, where there is one."""
        return None if self.kept is None else self.kept.read(Model(self.url), shard)

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Read the documents' proportions, and the topics over the shard's words.

        Parameters
        ----------
        shard : Shard
            The shard.
        stream : Stream
            For families that draw numbers as they fit proportions.

        Returns
        -------
        Arrays
            ``document_topic``, float32, shape (documents, topics), and ``word_topic``, float32, shape (words of the
            shard, topics); of a tree ``topic_parent``, int64, each node's parent among these topics, -1 for the root.
        """
        model = Model(self.url)
        half = model.shard_model
        rows = _rows(model, shard)
        if self.number is None:
            local = half.fold_in(shard, rows, model.global_state, stream)
        else:
            local = model.documents(self.number)
        columns = list(self.topics)
        theta = np.asarray(half.infer(local, model.global_state)["document_topic"][:, columns], dtype=np.float32)
        known = np.empty((shard.words.size, theta.shape[1]), dtype=np.float32)
        portion = max(CELLS // max(theta.shape[1], 1), 1)
        for low in range(0, shard.words.size, portion):  # in double precision, all of them would take too much
            some = rows.of_words(slice(low, low + portion), complete=True)
            known[low : low + portion] = half.probabilities(some, model.global_state)["word_topic"][:, columns]
        none = rows.of_words(slice(0), complete=True)
        parents = _parents(half.probabilities(none, model.global_state).get("topic_parent"), columns)
        if self.columns:
            theta, known = (_in_place(values, columns, self.columns) for values in (theta, known))
        return {"document_topic": theta, "word_topic": known, **parents}


def _in_place(values: npt.NDArray[np.float32], columns: list[int], topics: int) -> npt.NDArray[np.float32]:
    """Put values side by side back into the columns that they are of; the others are zero."""
    wide = np.zeros((len(values), topics), dtype=np.float32)
    wide[:, columns] = values
    return wide


def _parents(every: Ints | None, columns: list[int]) -> dict[str, Ints]:
    """Return the parents of a tree's nodes by their places among those that are taken; nothing unless all are."""
    if every is None:
        return {}
    own, kept = every[columns], np.array(columns, dtype=np.int64)
    if not np.isin(own[own >= 0], kept).all():
        return {}
    return {"topic_parent": np.where(own >= 0, np.searchsorted(kept, own), own)}


def _rows(model: Model, shard: AnyShard) -> Rows:
    """Read the rows of a shard's words; those that came into the vocabulary after the model have no token there."""
    words = shard.words[: np.searchsorted(shard.words, model.record.vocabulary.words)]
    cuts = np.searchsorted(words, model.record.blocks)
    wanted = [number for number in range(len(model.blocks)) if cuts[number] < cuts[number + 1]] or [0]
    blocks = [tasks.Block(*model.blocks[number], model.rows(number), Delta()) for number in wanted]
    rows, later = tasks.gather(blocks, words, complete=True), shard.words.size - words.size
    if not later:
        return rows
    half = model.shard_model
    blank = half.finished_rows(half.initial_rows(later, model.global_state), model.global_state)
    return type(rows).joined([rows, blank])


@dataclass(frozen=True)
class WarmStart:
    """What a fit begins from.

    Attributes
    ----------
    references : sequence of WarmReference
        One a shard.
    family : str
        The family of the model.
    options : dict
        Its options.
    url : str
        Its folder.
    """

    references: Sequence[WarmReference]
    family: str
    options: dict[str, Any]
    url: str

    def begin(
        self, family: str, config: FamilyOptions, global_state: GlobalState
    ) -> tuple[GlobalState, list[WarmReference]]:
        """Say what each shard begins from, and from which global state.

        Parameters
        ----------
        family : str
            What is fitted.
        config : FamilyOptions
            Its options.
        global_state : GlobalState
            As `initialise` made them.

        Returns
        -------
        global_state : GlobalState
            With what the model has learned, where its family and options let it go on.
        references : list of WarmReference
            Then with the local states that were kept.
        """
        half = load_family(family)
        if family == self.family and isinstance(half, Resumable):
            carried = half.carry(global_state, Model(self.url).global_state, config, make_options(family, self.options))
            if carried is not None:
                after, columns = carried
                return after, [replace(one, columns=columns) for one in self.references]
        return global_state, [replace(one, kept=None) for one in self.references]


def warm_start(source: WarmSource, corpus: Corpus, topics: int | None) -> WarmStart:
    """Find what a fit begins from; see `warm_references`."""
    model = _model_of(source)
    return WarmStart(_references(source, model, corpus, topics), model.record.family, model.record.options, source.url)


def warm_references(source: WarmSource, corpus: Corpus, topics: int | None) -> list[WarmReference]:
    """Find what a model knows of each shard of a corpus.

    Parameters
    ----------
    source : WarmSource
        The model.
    corpus : Corpus
        What is to be fitted.
    topics : int or None
        How many topics the fit may have; None where there is no limit. Of a model with more, the largest are taken.

    Returns
    -------
    list of WarmReference
        One a shard, each by proportions and topics alone.

    Raises
    ------
    AbsentError
        The model is gone, or the local states that its run kept.
    MismatchError
        It is another model by now, or the corpus has neither its vocabulary nor that with words after it.
    """
    return [replace(one, kept=None) for one in _references(source, _model_of(source), corpus, topics)]


def _model_of(source: WarmSource) -> Model:
    """Open the model, which must be the one that was named."""
    try:
        model = Model(source.url)
    except AbsentError as error:
        raise AbsentError(
            f"{error} (the run begins from it, and has no checkpoint yet); put it back, or start a new run"
        ) from None
    if digest_of(model.record.model_dump(mode="json")) != source.digest:
        raise MismatchError(f"{source.url}: it is not the model that the run was to begin from; start a new run")
    return model


def _references(source: WarmSource, model: Model, corpus: Corpus, topics: int | None) -> list[WarmReference]:
    """Find what a model knows of each shard, and what its run has kept of it."""
    if not corpus.begins_with(model.record.vocabulary):
        corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    kept = _kept(model)
    if source.local_states and (kept is None or kept.digest != source.local_states):
        raise AbsentError(
            f"{source.url}: the local states that the run begins from are gone from its checkpoints; start a new run"
        )
    states = kept.states if kept is not None and source.local_states else {}
    ids, share = _occupied(model)
    chosen = sorted(np.argsort(-share, kind="stable")[:topics])
    largest, held = tuple(int(one) for one in ids[chosen]), float(share[chosen].sum())
    own = {(one.documents, one.ids_sha256): number for number, one in reversed(list(enumerate(model.record.shards)))}
    found = []
    for number, row in enumerate(corpus.manifest.shards):
        key = (row.documents, row.ids_sha256)
        same = model.record.shards[number : number + 1]
        there = number if same and (same[0].documents, same[0].ids_sha256) == key else own.get(key)
        number_there = there if model.fitted else None
        found.append(WarmReference(model.folder.address, number_there, largest, held, kept=states.get(row.sha256)))
    return found


def _kept(model: Model) -> _Kept | None:
    """Find the local states that a model's run keeps in a checkpoint of its iteration; None where there are none."""
    place = model.folder
    up = 2 if place.exists(CHECKPOINT) else 1
    run = Run(place.address.rsplit("/", up)[0])
    if not run.exists():
        return None
    try:
        files = run.record()["corpus"]["shards"]
        place = run.checkpoints.at(model.record.iterations).folder
        parts = Checkpoint(place).record().parts
        states = {
            file: KeptLocal(place.address, part, parts[part])
            for file, part in (
                (file, f"local_states/{number:05d}") for number, file in reversed(list(enumerate(files)))
            )
        }
    except (DamagedError, KeyError, TypeError):  # of another release, or removed: there is nothing to go on from
        return None
    return _Kept(states, digest_of({file: one.digest for file, one in states.items()}))


def _occupied(model: Model) -> tuple[Ints, Floats]:
    """Return the ids of the topics that have tokens, ascending, which are columns, and their shares; of trees all."""
    few = model.rows(0).of_words(slice(1), complete=True)
    found = load_family(model.record.family).describe(few, model.global_state, 1)
    there = (found.share > 0.0) | (not found.share.any()) | (found.parent is not None)
    ids, share = np.asarray(found.ids, dtype=np.int64)[there], np.asarray(found.share, dtype=np.float64)[there]
    order = np.argsort(ids, kind="stable")
    return ids[order], share[order]
