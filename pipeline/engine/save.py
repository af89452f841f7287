"""Save the finished model of a run, each part by the worker that holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.engine.summary import summary_of
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import occupied, same_topics
from collapsium.storage.building.ingest_record import inherit_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.errors import AbsentError, ClusterError, CollapsiumError, DamagedError, LockedError, StoreError
from collapsium.storage.io.folder import Folder, replaced
from collapsium.storage.runs.model import RECORD, ModelRecord, ModelWriter, Processor, ShardDocuments, read_model_record
from collapsium.storage.runs.summary import write_summary
from collapsium.storage.runs.topic_names import TopicName, read_names, write_names
from collapsium.workers import tasks
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.family import AnyFamily


def names_in(folder: Folder) -> dict[int, TopicName]:
    """Return the names of the topics of a model that is about to be replaced; none where it cannot be read."""
    try:
        return read_names(folder, read_model_record(folder)) if folder.exists(RECORD) else {}
    except CollapsiumError:
        return {}


def matched_names(folder: Folder, before: Folder) -> dict[int, TopicName]:
    """Return the names of an earlier model's topics for the topics of a model that match them."""
    known = names_in(before)
    # Topics are compared only where there are names to hand down.
    return _handed_down(same_topics(Model(folder.url), Model(before.url)), known) if known else {}


def _handed_down(same: dict[int, int], known: dict[int, TopicName]) -> dict[int, TopicName]:
    """Return the names of topics under the ids of those that match them."""
    return {
        topic: known[matched].model_copy(update={"id": topic}) for topic, matched in same.items() if matched in known
    }


@dataclass(frozen=True)
class Succession:
    """Topics of a model that match none of an earlier one, and topics of that one that match none of the model."""

    born: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()

    def text(self) -> str:
        """Return the topics as text."""
        # In families whose topics cannot be renumbered, a new topic may have the number of a former one.
        both = [topic for topic in self.born if topic in self.gone]
        parts = (("new", self.born), ("gone", self.gone))
        texts = [(name, [topic for topic in ids if topic not in both]) for name, ids in parts] + [("replaced", both)]
        return "; ".join(f"{name} {', '.join(map(str, ids))}" for name, ids in texts if ids)


def inherit_names(model: Model, warm: Model) -> None:
    """Write the names that a finished model's topics have from the model that its run began from."""
    # Topics are compared only where there are names to hand down.
    if names_in(warm.folder):
        succession_of(model, warm)


def succession_of(model: Model, before: Model) -> Succession:
    """Match the topics of a finished model with an earlier one's, and write the names that these hand down."""
    same, names = same_topics(model, before), names_in(model.folder)
    inherited = _handed_down(same, names_in(before.folder)) | names
    if len(inherited) > len(names):
        write_names(model.folder, model.record, inherited.values())
    born = (topic for topic in occupied(model).tolist() if topic not in same)
    gone = (topic for topic in occupied(before).tolist() if topic not in same.values())
    return Succession(tuple(born), tuple(gone))


# Names, by the topics' ids, of the model that a folder is about to hold
NamesOf: TypeAlias = Callable[[Folder], Mapping[int, TopicName]]


def no_names(folder: Folder) -> dict[int, TopicName]:  # noqa: ARG001
    """Return no names."""
    return {}


def documents_of(corpus: Corpus) -> list[ShardDocuments]:
    """Return the number and the ids' digest of each shard's documents, as a model records them."""
    rows = corpus.manifest.shards
    return [ShardDocuments(documents=row.documents, ids_sha256=row.ids_sha256) for row in rows]


def save_model(
    target: Folder,
    corpus: Corpus,
    problem: Problem,
    state: State,
    processors: Sequence[Processor] = (),
    notice: Callable[[str], None] | None = None,
    names: NamesOf = no_names,
) -> None:
    """Save a state as a finished model, in place of an older one; after an error the older one is still there."""
    executor = problem.executor
    with replaced(target) as folder:
        writer = ModelWriter(folder)
        written = [
            executor.submit(write_block, writer, number, problem.family, block, state.global_state)
            for number, block in enumerate(state.blocks)
        ]
        written += [
            executor.submit(write_shard, writer, number, problem.family, swept)
            for number, swept in enumerate(state.swept)
        ]
        parts = dict([writer.write_global_state(state.global_state.to_arrays()), *executor.collect(written)])
        missing = [part for part in parts if not folder.exists(part)]
        if missing:
            raise ClusterError(
                f"{target.url}: the workers wrote {missing[0]} to a storage that this process cannot see; expected a "
                f"folder that the "
                "driver and all workers share"
            )
        manifest = corpus.manifest
        record = ModelRecord(
            family=problem.name,
            options=problem.config.model_dump(mode="json"),
            iterations=state.iteration,
            corpus=manifest.digest,
            vocabulary=manifest.vocabulary,
            blocks=problem.block_bounds,
            shards=tuple(documents_of(corpus)),
            parts=parts,
            lineage=lineage_of(corpus),
            processors=tuple(processors),
        )
        finish_model(writer, record, corpus, executor, names, notice)


def finish_model(
    writer: ModelWriter,
    record: ModelRecord,
    corpus: Corpus,
    executor: Executor,
    names: NamesOf = no_names,
    notice: Callable[[str], None] | None = None,
) -> None:
    """Complete a model whose parts are written: with vocabulary, record and summary."""
    try:
        # By this record the model reads new documents without the corpus.
        inherit_history(corpus.folder, writer.folder)
    except DamagedError as error:
        if notice is not None:
            notice(f"the model has no record of how its documents were read: {error}")
    record = writer.finish(record, corpus.vocabulary)
    try:
        if saved := names(writer.folder):
            write_names(writer.folder, record, saved.values())
    except (DamagedError, AbsentError) as error:
        if notice is not None:
            notice(f"the names of the topics were not carried over: {error}")
    if notice is not None and save_summary(writer.folder, corpus, executor, notice):
        writer.write_record(record.model_copy(update={"summarised": True}))


def save_summary(folder: Folder, corpus: Corpus, executor: Executor, notice: Callable[[str], object]) -> bool:
    """Write the summary of a model's documents, or report why there is none; return true if it was written.

    An error in a summary never costs the model, as the titles, dates and labels of which it is made take no part in a
    fit. After lost work or a failure of the store, the fit continues from its last checkpoint; a
    process whose run another one has taken over ends.
    """
    try:
        write_summary(folder, summary_of(Model(folder.url), corpus, executor))
    except (ClusterError, LockedError, StoreError):
        raise
    except CollapsiumError as error:
        notice(f"the model has no summary of its documents: {error}")
        return False
    except Exception as error:
        notice(f"the model has no summary of its documents: {type(error).__name__}: {error} (a defect)")
        return False
    return True


def write_block(
    writer: ModelWriter, number: int, model: AnyFamily, block: tasks.Block, global_state: GlobalState
) -> tuple[str, str]:
    """Write a block of the vocabulary; return the name of the part and its digest."""
    return writer.write_block(number, model.finished_rows(block.rows, global_state).to_arrays())


def write_shard(writer: ModelWriter, number: int, model: AnyFamily, swept: tasks.Swept) -> tuple[str, str]:
    """Write the documents of a shard, as a model has them; return the name of the part and its digest."""
    local = tasks.local_state(model, swept.local)
    return writer.write_shard(number, model.documents(local).to_arrays())
