"""Match the members of a run, and record their mean as a model: the one that commands read of several fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.consensus.joined_models import JoinedModel
from collapsium.pipeline.engine.consensus.matching import Consensus, join
from collapsium.pipeline.engine.model_io.names import names_in
from collapsium.pipeline.engine.model_io.save import finish_model
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.averaged_models import width_of
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.io.transactions import replaced
from collapsium.storage.runs.members import averaged_models, mean_folder
from collapsium.storage.runs.model import MatchedMember, ModelWriter, read_model_record
from collapsium.storage.runs.run import MEMBERS, Run
from collapsium.storage.runs.topic_names import TopicName
from collapsium.workers.families.mean import ABSENT

Ints = npt.NDArray[np.int64]


def has_mean(request: Request) -> bool:
    """Return true if a run has several models, whose topics are matched and averaged when it ends."""
    if request.has_consensus or request.keep == "best":
        return False
    several = max(request.restarts, 1) * max(request.limits.samples, 1) > 1
    return several and load_family(request.family).shard_model.dirichlet_proportions


def is_mean_current(run: Run) -> bool:
    """Return true if the mean of a run's members is there, and they are the models that were matched."""
    try:
        return Model(mean_folder(run).url).averaged is not None
    except CollapsiumError:
        return False


def save_mean(run: Run, request: Request, executor: Executor, at_a_time: int, notice: Callable[[str], None]) -> None:
    """Match the models of a run, and record their mean."""
    target, members = mean_folder(run), run.folder / MEMBERS
    folders = averaged_models(run.folder.url)
    urls = [(members / name).address for name in folders]
    # All topics of the others have a match in the model with most of them, so that proportions add up to one.
    occupied = [len(JoinedModel.of(url).topics) for url in urls]
    first = int(np.argmax(occupied))
    order = [first, *(number for number in range(len(urls)) if number != first)]
    consensus = join([urls[number] for number in order], request.corpus, executor, at_a_time)
    columns = dict(zip(order, all_columns(consensus), strict=True))
    matched = tuple(
        MatchedMember(folder=name, digest=Model(urls[number]).record.digest, columns=tuple(columns[number].tolist()))
        for number, name in enumerate(folders)
    )
    names = _lasting_names(run, folders[first])
    record = Model(urls[first]).record.model_copy(update={"parts": {}, "members": matched, "summarised": False})
    with replaced(target) as folder:
        finish_model(ModelWriter(folder), record, request.corpus, executor, lambda _: names, notice)


def all_columns(consensus: Consensus) -> list[Ints]:
    """Return the columns of matched models for all columns of the first, of empty topics too."""
    widths = [width_of(Model(model.url)) for model in consensus.models]
    result = []
    for model, width in zip(consensus.models, widths, strict=True):
        columns = np.full(widths[0], ABSENT, dtype=np.int64)
        columns[list(consensus.topics)] = model.columns
        unmatched = [topic for topic in model.topics if topic not in model.columns]
        left = [*unmatched, *(column for column in range(width) if column not in {*model.columns, *unmatched})]
        free = np.flatnonzero(columns == ABSENT)[: len(left)]
        columns[free] = left[: free.size]
        result.append(columns)
    return result


def _lasting_names(run: Run, first: str) -> dict[int, TopicName]:
    """Return the names that topics had in an earlier mean; none if their ids were those of another member."""
    target = mean_folder(run)
    try:
        members = read_model_record(target).members
    except CollapsiumError:
        return {}
    before = next((one.folder for one in members if one.columns == tuple(range(len(one.columns)))), None)
    return names_in(target) if before == first else {}
