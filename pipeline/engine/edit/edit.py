"""Edit the topics of a model: merge, delete, split and rename them, with exact counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from collapsium.pipeline.engine.edit.edited_model import EditedModel
from collapsium.pipeline.engine.edit.options import EditOptions
from collapsium.pipeline.engine.edit.transfer import delete, split
from collapsium.pipeline.engine.model_io.save import save_summary
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.training_corpus import training_corpus
from collapsium.pipeline.options import keywords
from collapsium.storage.building.ingest_record import inherit_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import AbsentError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import created, ensure_free
from collapsium.storage.runs.model import RECORD, ModelRecord, ModelWriter
from collapsium.storage.runs.topic_names import TopicName, clean_name, read_names, write_names


@dataclass(frozen=True)
class Edited:
    """Topics of an edited model."""

    topics: int  # Number of topics that have tokens
    merged: dict[int, int]  # The topic that each merged topic became part of
    deleted: tuple[int, ...]  # Topics that were deleted
    halves: dict[int, int]  # The new topic that each topic's second half has become
    names: dict[int, str]  # Names of the topics that have one
    notes: tuple[str, ...] = ()  # Sentences on what the model lacks


@keywords(options=EditOptions)
def edit(run: str | os.PathLike[str], out: str | os.PathLike[str], *, options: EditOptions) -> Edited:
    """Write a model whose topics are merged, deleted, split or renamed; the run stays as it is.

    Merges come first, then deletes, then splits. Counts of documents and of words add up to the same as before. The
    result is a model, from which `fit` can begin (`warm`). All other topics keep their ids.

    Parameters
    ----------
    run : str or path-like
        Folder of a run that has ended, or of a model, of lda or hdp; of several fits one of them, or their consensus.
    out : str or path-like
        Folder of the new model.
    options : EditOptions
        The edits.

    Returns
    -------
    Edited
        The topics after the edits.

    Raises
    ------
    OptionError
        There is nothing to edit, a topic does not exist or is named twice, no topic would be left, a name is empty, or
        the topics of the model cannot be edited.
    OccupiedError
        `out` exists.
    AbsentError
        There is no finished model, or deletes and splits need the training corpus and it is gone.
    """
    folder = Folder(out)
    ensure_free(folder)
    model = Model(run)
    if not model.folder.exists(RECORD):
        raise AbsentError(f"{model.folder.url}: the run is not at its end; only a finished model can be edited")
    if options.is_empty:
        raise OptionError("nothing to edit: name topics to `merge`, `delete`, `split` or `rename`")
    edited = EditedModel.of(model)
    options.require_topics(edited.used)
    corpus, notes = _corpus(model, options)
    executor = open_executor("threads", options.workers)
    try:
        edited, halves = _applied(replace(edited, corpus=corpus), options, executor)
        names = _names(model, options)
        with created(folder) as place:
            record = _write(place, edited)
            write_names(place, record, names.values())
            notes += _summarise(place, corpus, executor)
    finally:
        executor.close()
    return Edited(
        topics=int((edited.counts.sum(axis=0) > 0.0).sum()),
        merged={topic: group[0] for group in options.merge for topic in group[1:]},
        deleted=options.delete,
        halves=halves,
        names={topic: one.name for topic, one in sorted(names.items())},
        notes=tuple(notes),
    )


def renumber(model: Model, ids: Mapping[int, int], folder: Folder, corpus: Corpus) -> None:
    """Write a model with other ids of its topics, with their names and the summary of its documents."""
    edited, names = EditedModel.of(model).renumbered(ids), read_names(model.folder, model.record)
    renamed = [one.model_copy(update={"id": ids.get(topic, topic)}) for topic, one in names.items()]
    executor = open_executor("threads", None)
    try:
        with created(folder) as place:
            write_names(place, _write(place, edited), renamed)
            _summarise(place, corpus, executor)
    finally:
        executor.close()


def _corpus(model: Model, options: EditOptions) -> tuple[Corpus | None, list[str]]:
    """Return the training corpus, and notes on what is not made without it."""
    if options.corpus is None:
        corpus = training_corpus(model)
    else:
        corpus = Corpus(options.corpus)
        if corpus.manifest.digest != model.record.corpus:
            raise MismatchError(f"{corpus.url}: it is not the corpus that the model was fitted to")
    if corpus is not None:
        return corpus, []
    if options.needs_corpus and model.record.shards and model.fitted:
        raise AbsentError(
            f"{model.folder.url}: the training corpus, which deletes and splits read, is gone; name its location "
            "(`corpus`)"
        )
    return None, ["The training corpus is gone, so the model has no summary of its documents."]


def _applied(model: EditedModel, options: EditOptions, executor: Executor) -> tuple[EditedModel, dict[int, int]]:
    """Return the model after the edits, and the new topics of split ones."""
    halves: dict[int, int] = {}
    for group in options.merge:
        model = model.merged(list(group))
    for topic in options.delete:
        model = delete(model, topic, executor)
    for topic in options.split:
        model, halves[topic] = split(model, topic, executor)
    return model, halves


def _names(model: Model, options: EditOptions) -> dict[int, TopicName]:
    """Return the names after the edits; a merged topic has the name of the first of its parts that has one."""
    names = dict(read_names(model.folder, model.record))
    for group in options.merge:
        first = next((names[topic] for topic in group if topic in names), None)
        if first is not None:
            names[group[0]] = first.model_copy(update={"id": group[0]})
    names = {topic: one for topic, one in names.items() if topic not in options.removed}
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
    changed = {"options": edited.options.model_dump(mode="json"), "parts": dict(parts), "summarised": False}
    return writer.finish(source.record.model_copy(update=changed), source.vocabulary)


def _summarise(place: Folder, corpus: Corpus | None, executor: Executor) -> list[str]:
    """Write the summary of the model's documents; return a note if there is none."""
    model, notes = Model(place.url), list[str]()
    if corpus is not None and model.fitted and save_summary(place, corpus, executor, notes.append):
        ModelWriter(place).write_record(model.record.model_copy(update={"summarised": True}))
    return [f"{note[:1].upper()}{note[1:]}." for note in notes]
