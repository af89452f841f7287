"""Names of topics that live on: from the model that a run replaces, or from the model that it began from."""

from __future__ import annotations

from collections.abc import Mapping

from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.topic_matching import same_topics
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.model import RECORD, read_model_record
from collapsium.storage.runs.topic_names import TopicName, read_names, write_names


def names_in(folder: Folder) -> dict[int, TopicName]:
    """Return the names of the topics of a model that is about to be replaced; none where it cannot be read."""
    try:
        return read_names(folder, read_model_record(folder)) if folder.exists(RECORD) else {}
    except CollapsiumError:
        return {}


def inherit_names(model: Model, own: Mapping[int, TopicName], warm: str | None) -> None:
    """Write the names of a finished model's topics that they have had before.

    Parameters
    ----------
    model : Model
        The finished model.
    own : mapping of int to TopicName
        Names that the model of the same run had before it went on; its topics keep their ids.
    warm : str or None
        Folder of the model that the run began from. Its names go to the topics that match.
    """
    names = dict(own)
    if warm is not None:
        before = Model(warm)
        known = names_in(before.folder)
        # Topics are compared only where there are names to carry.
        same = same_topics(model, before) if known else {}
        for ours, theirs in same.items():
            if theirs in known:
                names.setdefault(ours, known[theirs].model_copy(update={"id": ours}))
    if names:
        write_names(model.folder, model.record, names.values())
