"""Warm starts: fits that begin from the proportions and topics of another run, of any family of topics over words.

If that run is of the same family, unchanged shards begin from the local states of its last checkpoint, and learned
hyperparameters retain their values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family, recorded_options
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.io.records import digest_of
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.members import restarts_of, single_model_of
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, GlobalState, Rows
from collapsium.workers.families.family import AnyFamily, CarriesHyperparameters

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
CELLS = 1 << 20  # Probabilities that are computed at a time, in double precision


@dataclass(frozen=True)
class WarmSource:
    """The model that a fit begins from."""

    url: str  # Folder of the model or, where the run had none, of its checkpoint
    digest: str  # Digest of its record, which has the digests of its parts
    topics: int  # Number of its topics that have tokens
    # Digest of the local states that its run keeps in a checkpoint of the same iteration; empty where there are none
    local_states: str = ""
    # The members of an ensemble; member k of a fit of as many restarts begins from member k
    members: tuple[WarmSource, ...] = ()

    @classmethod
    def of(cls, run: str | os.PathLike[str], restarts: int = 0) -> WarmSource:
        """Return the model of a run; of an ensemble of as many restarts, the models of all members."""
        members = restarts_of(run)
        if restarts and len(members) == restarts:
            sources = tuple(cls._of(member.folder.url) for _, member in members)
            return replace(sources[0], members=sources)
        return cls._of(run)

    def member(self, number: int) -> WarmSource:
        """Return the model from which member `number` of an ensemble begins."""
        return self.members[number] if self.members else self

    @classmethod
    def _of(cls, run: str | os.PathLike[str]) -> WarmSource:
        model = Model(single_model_of(run))
        family = model.record.family
        if model.record.members:
            raise OptionError(
                f"{model.folder.url}: the mean of several fits has no state to continue from; name one of them", "warm"
            )
        if load_family(family).corpus_kind != DOCUMENTS:
            raise OptionError(f"`warm` {model.folder.url}: family '{family}' has no topics over words to begin from")
        saved = _saved_states(model)
        local_states = "" if saved is None else saved.digest
        return cls(model.folder.address, model.record.digest, len(_occupied(model)[0]), local_states)

    def record(self) -> dict[str, object]:
        """Return the source as `run.json` has it."""
        record: dict[str, object] = {"url": self.url, "digest": self.digest, "topics": self.topics}
        if self.local_states:
            record["local_states"] = self.local_states
        if self.members:
            record["members"] = [member.record() for member in self.members]
        return record

    @classmethod
    def from_record(cls, folder: Folder, record: JsonObject) -> WarmSource:
        """Return the source that the `run.json` of a folder names."""
        members = tuple(cls.from_record(folder, member) for member in record.get("members", ()))
        return cls(
            recorded_url(folder, record["url"]),
            record["digest"],
            record["topics"],
            record.get("local_states", ""),
            members,
        )


@dataclass(frozen=True)
class SavedLocalState:
    """A shard's local state in a checkpoint: folder of the checkpoint, name of the part, and digest."""

    url: str
    part: str
    digest: str

    def read(self, model: Model, shard: AnyShard) -> Arrays:
        """Read the local state, and check it by the model and the shard."""
        local = Checkpoint(Folder(self.url)).read(self.part, self.digest)
        model.check_local(local, shard, f"{self.url}/{self.part}")
        return local


@dataclass(frozen=True)
class _SavedStates:
    """The local states of a run by the digests of their shards' files, and a digest of them all."""

    states: dict[str, SavedLocalState]
    digest: str


@dataclass(frozen=True)
class WarmReference:
    """Reference to the part of a model from which a shard's first local state is made."""

    url: str  # Folder of the model
    # The model's number of the shard; None where it was fitted to other documents, so that these are folded in
    number: int | None
    topics: tuple[int, ...]  # Columns of the topics that have tokens, or of the largest of them
    share: float  # Share of the tokens in these topics
    columns: int = 0  # Number of the fit's topics, if each topic retains its column; 0 if they get the first columns
    saved: SavedLocalState | None = None  # The local state of the same shard in the checkpoint of the model's run

    def local(self, shard: AnyShard) -> Arrays | None:
        """Read the local state from which the shard continues, if there is one."""
        return None if self.saved is None else self.saved.read(Model(self.url), shard)

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Read the documents' proportions, and the topics over the shard's words."""
        model = Model(self.url)
        family = model.family
        rows = _rows(model, shard)
        if self.number is None:
            local = family.fold_in(shard, rows, model.global_state, stream)
        else:
            local = model.local_state(self.number)
        columns = list(self.topics)
        theta = np.asarray(family.infer(local, model.global_state)["document_topic"][:, columns], dtype=np.float32)
        known = np.empty((shard.words.size, theta.shape[1]), dtype=np.float32)
        step = max(CELLS // max(theta.shape[1], 1), 1)
        for low in range(0, shard.words.size, step):
            some = rows.of_words(slice(low, low + step), complete=True)
            known[low : low + step] = family.probabilities(some, model.global_state)["word_topic"][:, columns]
        none = rows.of_words(slice(0), complete=True)
        parents = _parents(family.probabilities(none, model.global_state).get("topic_parent"), columns)
        if self.columns:
            theta, known = (_in_columns(values, columns, self.columns) for values in (theta, known))
        return {"document_topic": theta, "word_topic": known, **parents}


def _in_columns(values: npt.NDArray[np.float32], columns: list[int], topics: int) -> npt.NDArray[np.float32]:
    """Return values in the columns of their topics; other columns are zero."""
    wide = np.zeros((len(values), topics), dtype=np.float32)
    wide[:, columns] = values
    return wide


def _parents(parents: Ints | None, columns: list[int]) -> dict[str, Ints]:
    """Return the parents of selected nodes by their places in the selection; empty unless all parents are in it."""
    if parents is None:
        return {}
    selected, ids = parents[columns], np.array(columns, dtype=np.int64)
    if not np.isin(selected[selected >= 0], ids).all():
        return {}
    return {"topic_parent": np.where(selected >= 0, np.searchsorted(ids, selected), selected)}


def _rows(model: Model, shard: AnyShard) -> Rows:
    """Read the rows of a shard's words; words that were added to the vocabulary after the model have blank rows."""
    words = shard.words[: np.searchsorted(shard.words, model.record.vocabulary.words)]
    ends = np.searchsorted(words, model.record.blocks)
    numbers = [number for number in range(len(model.blocks)) if ends[number] < ends[number + 1]] or [0]
    blocks = [tasks.Block(*model.blocks[number], model.rows(number), Delta()) for number in numbers]
    rows, later = tasks.gather(blocks, words, complete=True), shard.words.size - words.size
    if not later:
        return rows
    known = model.record.vocabulary.words
    blank = model.family.blank_rows(known, known + later, model.global_state)
    return type(rows).joined([rows, blank])


@dataclass(frozen=True)
class WarmStart:
    """A model from which a fit begins."""

    references: Sequence[WarmReference]  # A reference for each shard
    family: str  # Family of the model
    options: JsonObject  # Options of the model
    url: str  # Folder of the model

    def begin(self, name: str, family: AnyFamily, global_state: GlobalState) -> tuple[GlobalState, list[WarmReference]]:
        """Return the first global state, and the reference from which each shard begins."""
        if name == self.family and isinstance(family, CarriesHyperparameters):
            before = recorded_options(name, self.options)
            carried = family.carry(global_state, Model(self.url).global_state, before)
            if carried is not None:
                after, columns = carried
                return after, [replace(reference, columns=columns) for reference in self.references]
        return global_state, [replace(reference, saved=None) for reference in self.references]


def warm_start(source: WarmSource, corpus: Corpus, topics: int | None) -> WarmStart:
    """Return the warm start of a fit; see `warm_references`."""
    model = _model_of(source)
    return WarmStart(_references(source, model, corpus, topics), model.record.family, model.record.options, source.url)


def warm_references(source: WarmSource, corpus: Corpus, topics: int | None) -> list[WarmReference]:
    """Return the references from which the shards of a corpus begin."""
    return [replace(reference, saved=None) for reference in _references(source, _model_of(source), corpus, topics)]


def _model_of(source: WarmSource) -> Model:
    """Open the model of a source, and check that it is the same."""
    try:
        model = Model(source.url)
    except AbsentError as error:
        raise AbsentError(
            f"{error} (the run begins from it, and has no checkpoint yet); put it back, or start a new run"
        ) from None
    if model.record.digest != source.digest:
        raise MismatchError(f"{source.url}: it is not the model that the run was to begin from; start a new run")
    return model


def _references(source: WarmSource, model: Model, corpus: Corpus, topics: int | None) -> list[WarmReference]:
    """Return the references from which the shards begin, with the saved local states of unchanged shards."""
    if not corpus.begins_with(model.record.vocabulary):
        corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    saved = _saved_states(model)
    if source.local_states and (saved is None or saved.digest != source.local_states):
        raise AbsentError(
            f"{source.url}: the local states that the run begins from are gone from its checkpoints; start a new run"
        )
    states = saved.states if saved is not None and source.local_states else {}
    ids, share = _occupied(model)
    chosen = sorted(np.argsort(-share, kind="stable")[:topics])
    largest, total_share = tuple(int(topic) for topic in ids[chosen]), float(share[chosen].sum())
    shards_of_model = {
        (row.documents, row.ids_sha256): number for number, row in reversed(list(enumerate(model.record.shards)))
    }
    references = []
    for number, row in enumerate(corpus.manifest.shards):
        key = (row.documents, row.ids_sha256)
        same = model.record.shards[number : number + 1]
        in_model = number if same and (same[0].documents, same[0].ids_sha256) == key else shards_of_model.get(key)
        references.append(
            WarmReference(
                model.folder.address,
                in_model if model.fitted else None,
                largest,
                total_share,
                saved=states.get(row.sha256),
            )
        )
    return references


def _saved_states(model: Model) -> _SavedStates | None:
    """Return the local states in the checkpoint of the model's last iteration; None where there are none."""
    folder = model.folder
    up = 2 if folder.exists(CHECKPOINT) else 1
    run = Run(folder.address.rsplit("/", up)[0])
    if not run.exists():
        return None
    try:
        files = run.record()["corpus"]["shards"]
        folder = run.checkpoints.at(model.record.iterations).folder
        parts = Checkpoint(folder).record().parts
        states = {
            file: SavedLocalState(folder.address, part, parts[part])
            for file, part in (
                (file, f"local_states/{number:05d}") for number, file in reversed(list(enumerate(files)))
            )
        }
    except (DamagedError, KeyError, TypeError):
        # The checkpoint is of another release, or was removed.
        return None
    return _SavedStates(states, digest_of({file: state.digest for file, state in states.items()}))


def _occupied(model: Model) -> tuple[Ints, Floats]:
    """Return the columns of the topics that have tokens, ascending, and their shares; for trees all nodes' columns."""
    first_word = model.rows(0).of_words(slice(1), complete=True)
    topics = model.describe(first_word, 1)
    used = (topics.share > 0.0) | (not topics.share.any()) | (topics.parent is not None)
    ids, share = np.asarray(topics.ids, dtype=np.int64)[used], np.asarray(topics.share, dtype=np.float64)[used]
    order = np.argsort(ids, kind="stable")
    return ids[order], share[order]
