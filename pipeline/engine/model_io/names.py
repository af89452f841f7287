"""Names of topics that live on: from the model that a run replaces, or from the model that it began from."""

from __future__ import annotations

from dataclasses import dataclass

from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.topic_matching import occupied, same_topics
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


def matched_names(folder: Folder, before: Folder) -> dict[int, TopicName]:
    """Return the names of an earlier model's topics for the topics of a model that match them."""
    known = names_in(before)
    # Topics are compared only where there are names to hand down.
    return _handed_down(same_topics(Model(folder.url), Model(before.url)), known) if known else {}


def _handed_down(same: dict[int, int], known: dict[int, TopicName]) -> dict[int, TopicName]:
    """Return the names of topics under the ids of those that match them."""
    return {ours: known[theirs].model_copy(update={"id": ours}) for ours, theirs in same.items() if theirs in known}


@dataclass(frozen=True)
class Succession:
    """Topics of a model that match none of an earlier one, and topics of that one that match none of the model."""

    born: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()

    def text(self) -> str:
        """Return the topics as text."""
        # Families whose topics cannot be renumbered may have a new topic in the place of one that is gone.
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
    """Match the topics of a finished model with those of an earlier one, and write the names that these hand down."""
    same, names = same_topics(model, before), names_in(model.folder)
    inherited = _handed_down(same, names_in(before.folder)) | names
    if len(inherited) > len(names):
        write_names(model.folder, model.record, inherited.values())
    born = (topic for topic in occupied(model).tolist() if topic not in same)
    gone = (topic for topic in occupied(before).tolist() if topic not in same.values())
    return Succession(tuple(born), tuple(gone))
