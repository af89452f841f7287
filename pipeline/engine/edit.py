"""Edit the topics of a model: merge and rename them, with exact counts."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.edit_options import EditOptions
from collapsium.pipeline.engine.save import save_summary
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.fitted_model import Model as FittedModel
from collapsium.pipeline.models.model import Model, training_corpus
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.options import keywords
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.storage.building.ingest_record import inherit_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import AbsentError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.runs.model import RECORD, ModelRecord, ModelWriter
from collapsium.storage.runs.topic_names import TopicName, clean_name, read_names, write_names
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
from collapsium.workers.families.document_entries import DocumentEntries
from collapsium.workers.families.family import Editable, FamilyOptions

AnyEditable = Editable[Any, Any, Any, Any]


@dataclass(frozen=True)
class EditedModel:
    """The counts of a model, which edits replace."""

    source: Model  # The model that is edited
    family: AnyEditable  # The family, with the options after the edits
    global_state: GlobalState  # The global state
    counts: Floats  # E[n_kw]; float64 (words, topics)
    entries: list[DocumentEntries]  # E[n_dk] by shard
    used: frozenset[int]  # Ids of the topics that have tokens

    @classmethod
    def of(cls, model: Model) -> EditedModel:
        """Read a model."""
        if not issubclass(load_family(model.record.family), Editable):
            raise OptionError(f"topics of '{model.record.family}' cannot be edited; expected a model of lda or hdp")
        if model.members:
            raise OptionError(
                f"{model.folder.url}: the mean of several fits has no counts to edit; name one of them, or a consensus "
                "(`fit` with combine 'consensus')"
            )
        family = cast("AnyEditable", model.family)
        reason = family.uneditable(model.global_state)
        if reason is not None:
            raise OptionError(f"{model.folder.url}: its topics cannot be edited, as {reason}")
        blocks = [family.row_counts(model.rows(number)) for number in range(len(model.blocks))]
        counts = np.maximum(np.concatenate(blocks).astype(np.float64), 0.0)
        shards = range(len(model.record.shards)) if model.fitted else ()
        entries = [family.entries(model.local_state(number)) for number in shards]
        used = frozenset(np.flatnonzero(counts.sum(axis=0) > 0.0).tolist())
        return cls(model, _with_options(family, family.options.for_tasks()), model.global_state, counts, entries, used)

    @property
    def topics(self) -> int:
        """Number of columns of topics."""
        return int(self.counts.shape[1])

    @cached_property
    def prior(self) -> Floats:
        """Prior a_k of topics, shape (topics,)."""
        return self.family.topic_prior(self.global_state)

    def changed(self, counts: Floats, entries: Sequence[DocumentEntries], mixing: Floats) -> EditedModel:
        """Return the model with other counts."""
        options = self.family.options.model_copy(update={"topics": len(mixing)})
        parts = [
            self.family.plain_tokens(self.source.rows(number), counts[low:high])
            for number, (low, high) in enumerate(self.source.blocks)
        ]
        weighted = [part for part in parts if part is not None]
        plain = np.sum(weighted, axis=0) if weighted else None
        state = self.family.edited(self.global_state, mixing, counts.sum(axis=0), plain)
        family = _with_options(self.family, options)
        return replace(self, family=family, global_state=state, counts=counts, entries=list(entries))

    def merged(self, topics: list[int]) -> EditedModel:
        """Return the model with topics merged into the first of them; counts of words and documents are added."""
        counts, mixing = self.counts.copy(), np.eye(self.topics)
        counts[:, topics[0]] = counts[:, topics].sum(axis=1)
        counts[:, topics[1:]] = 0.0
        mixing[topics[0], topics] = 1.0
        mixing[topics[1:]] = 0.0
        return self.changed(counts, [entries.merged(topics, self.prior) for entries in self.entries], mixing)

    def renumbered(self, ids: Mapping[int, int]) -> EditedModel:
        """Return the model with other ids of some topics; the others keep theirs where these are free."""
        places, taken = dict(ids), set(ids.values())
        free = (number for number in itertools.count() if number not in taken)
        for topic in range(self.topics):
            if topic not in places:
                places[topic] = topic if topic not in taken else next(free)
                taken.add(places[topic])
        place = np.array([places[topic] for topic in range(self.topics)], dtype=np.int64)
        counts = np.zeros((len(self.counts), int(place.max()) + 1))
        mixing = np.zeros((counts.shape[1], self.topics))
        counts[:, place], mixing[place, np.arange(self.topics)] = self.counts, 1.0
        entries = [
            DocumentEntries.summed(
                member_entries.owner, place[member_entries.topic], member_entries.count, member_entries.rest
            )
            for member_entries in self.entries
        ]
        return self.changed(counts, entries, mixing)

    def rows(self, block: int) -> Rows:
        """Return the rows of a block of the vocabulary, as a finished model saves them."""
        low, high = self.source.blocks[block]
        rows: Rows = self.family.with_row_counts(self.source.rows(block), self.counts[low:high])
        return rows

    def documents(self, shard: int) -> LocalState:
        """Return the documents of a shard, as a finished model saves them."""
        local: LocalState = self.family.with_entries(self.source.local_state(shard), self.entries[shard], self.topics)
        return local


def _with_options(family: AnyEditable, options: FamilyOptions) -> AnyEditable:
    return cast("AnyEditable", type(family).with_options(options))


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Edited:
    """Topics of an edited model.

    Attributes
    ----------
    topics : int
        Number of topics that have tokens.
    merged : dict of int to int
        The topic that each merged topic became part of.
    names : dict of int to str
        Names of the topics that have one.
    notes : tuple of str
        Sentences on what the model lacks.
    """

    topics: int
    merged: dict[int, int]
    names: dict[int, str]
    notes: tuple[str, ...] = ()


@keywords(options=EditOptions)
@overwrites("out")
def edit(
    run: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, options: EditOptions
) -> Edited | FittedModel:
    """Write a model whose topics are merged or renamed; the run stays as it is.

    Counts of documents and of words add up to the same as before. The result is a model, from which `fit` can begin
    (`warm`). All other topics keep their ids.

    Parameters
    ----------
    run : str or path-like
        Folder of a run of lda or hdp that has ended, or of a model. For restarts, one member or the consensus.
    out : str or path-like, optional
        Folder of the new model. By default it is temporary, and is removed when the returned model is collected.
    options : EditOptions
        The edits.

    Returns
    -------
    Edited or Model
        The topics after the edits or, without `out`, the new model.

    Raises
    ------
    OptionError
        There is nothing to edit, a topic does not exist or is named twice, a name is empty, or the topics of the model
        cannot be edited.
    OccupiedError
        `out` exists.
    AbsentError
        There is no finished model.
    """
    if out is not None:
        ensure_free(Folder(out))
    model = Model(run)
    if not model.folder.exists(RECORD):
        raise AbsentError(f"{model.folder.url}: the run has not finished; only a finished model can be edited")
    if not (options.merge or options.rename):
        raise OptionError("nothing to edit: name topics to `merge` or `rename`")
    edited = EditedModel.of(model)
    options.require_topics(edited.used)
    corpus, notes = _corpus(model, options)
    for group in options.merge:
        edited = edited.merged(list(group))
    with contextlib.closing(open_executor("threads", options.workers)) as executor:
        names = _names(model, options)
        with place_for(out, "model") as place:
            with created(Folder(place.path)) as folder:
                record = _write(folder, edited)
                write_names(folder, record, names.values())
                notes += _summarise(folder, corpus, executor)
            if out is None:
                opened = Model(place.path)
                opened.take_over(str(place.temporary), place.path)
                return FittedModel(opened)
    return Edited(
        topics=int((edited.counts.sum(axis=0) > 0.0).sum()),
        merged={topic: group[0] for group in options.merge for topic in group[1:]},
        names={topic: entry.name for topic, entry in sorted(names.items())},
        notes=tuple(notes),
    )


def renumber(model: Model, ids: Mapping[int, int], folder: Folder, corpus: Corpus) -> None:
    """Write a model with other ids of its topics, with their names and the summary of its documents."""
    edited, names = EditedModel.of(model).renumbered(ids), read_names(model.folder, model.record)
    renamed = [entry.model_copy(update={"id": ids.get(topic, topic)}) for topic, entry in names.items()]
    with contextlib.closing(open_executor("threads", None)) as executor, created(folder) as place:
        write_names(place, _write(place, edited), renamed)
        _summarise(place, corpus, executor)


def _corpus(model: Model, options: EditOptions) -> tuple[Corpus | None, list[str]]:
    """Return the training corpus, and notes on the results that need it if it is missing."""
    if options.corpus is None:
        corpus = training_corpus(model)
    else:
        corpus = Corpus(options.corpus)
        if corpus.manifest.digest != model.record.corpus:
            raise MismatchError(f"{corpus.url}: it is not the corpus that the model was fitted to")
    if corpus is not None:
        return corpus, []
    # An edited model does not record its corpus.
    missing = "The training corpus is gone, has changed or is not recorded"
    return None, [f"{missing}, so the model has no summary of its documents."]


def _names(model: Model, options: EditOptions) -> dict[int, TopicName]:
    """Return the names after the edits; a merged topic has the name of the first of its parts that has one."""
    names = dict(read_names(model.folder, model.record))
    for group in options.merge:
        first = next((names[topic] for topic in group if topic in names), None)
        if first is not None:
            names[group[0]] = first.model_copy(update={"id": group[0]})
    names = {topic: entry for topic, entry in names.items() if topic not in options.removed}
    for topic, text in options.rename.items():
        names[topic] = TopicName(id=topic, name=clean_name(text), by="hand")
    return names


def _write(place: Folder, edited: EditedModel) -> ModelRecord:
    """Write the model, and return its record."""
    writer, source = ModelWriter(place), edited.source
    parts = [writer.write_global_state(edited.global_state.to_arrays())]
    parts += [writer.write_block(number, edited.rows(number).to_arrays()) for number in range(len(source.blocks))]
    shards = range(len(edited.entries))
    parts += [writer.write_shard(number, edited.documents(number).to_arrays()) for number in shards]
    inherit_history(source.folder, place)
    changed = {"options": edited.family.options.model_dump(mode="json"), "parts": dict(parts), "summarised": False}
    return writer.finish(source.record.model_copy(update=changed), source.vocabulary)


def _summarise(place: Folder, corpus: Corpus | None, executor: Executor) -> list[str]:
    """Write the summary of the model's documents; return a note if there is none."""
    model, notes = Model(place.url), list[str]()
    if corpus is not None and model.fitted and save_summary(place, corpus, executor, notes.append):
        ModelWriter(place).write_record(model.record.model_copy(update={"summarised": True}))
    return [f"{note[:1].upper()}{note[1:]}." for note in notes]
