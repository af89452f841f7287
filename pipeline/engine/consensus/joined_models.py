"""Models whose topics were matched, and the means from which a fit of a shard begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.setup.warm_start import WarmReference
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.topic_matching import occupied
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.mean import ABSENT

if TYPE_CHECKING:
    from collapsium.workers.arrays.random_streams import Stream

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class JoinedModel:
    """A model of the ensemble, and its columns."""

    url: str  # Folder of the model
    topics: tuple[int, ...]  # Columns of its topics that have tokens, ascending
    fixed: int = 0  # Topics, the first ones, that have the same column in all models, as they were seeded
    # Its column for each joined topic, `ABSENT` where it has none; empty before it is matched
    columns: tuple[int, ...] = ()

    @staticmethod
    def of(url: str) -> JoinedModel:
        """Return a model of the ensemble, not matched yet."""
        model = Model(url)
        topics = tuple(int(topic) for topic in occupied(model))
        return JoinedModel(model.folder.address, topics, len(model.seed_names))

    def reference(self, shard: int) -> WarmReference:
        """Return the reference to a shard's documents, with the columns that were matched."""
        return WarmReference(self.url, shard, tuple(column for column in self.columns if column != ABSENT), 1.0)

    @property
    def places(self) -> list[int]:
        """The joined topics that it has a match for, ascending."""
        return [place for place, column in enumerate(self.columns) if column != ABSENT]


@dataclass(frozen=True)
class JoinedReference(WarmReference):
    """Reference to the parts of several models from which a shard's first local state is made."""

    models: tuple[JoinedModel, ...] = ()  # The models, matched
    # Tokens of the mean proportions that stay in each document's prior, as in a start with a strength
    strength: float = 0.0

    def local(self, shard: AnyShard) -> None:  # noqa: ARG002
        """Return None: the mean of several models is no local state."""
        return

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Read the means of the documents' proportions, and of the topics over the shard's words."""
        columns = np.array(self.topics if self.columns else range(len(self.topics)), dtype=np.int64)
        width = self.columns or columns.size
        theta = np.zeros((shard.documents, width), dtype=np.float32)
        phi, having = np.zeros((shard.words.size, width), dtype=np.float32), np.zeros(width, dtype=np.float32)
        for model in self.models:
            arrays, places = model.reference(shard.number).arrays(shard, stream), columns[model.places]
            theta[:, places] += arrays["document_topic"]
            phi[:, places] += arrays["word_topic"]
            having[places] += 1.0
        theta /= np.float32(len(self.models))
        phi /= np.maximum(having, 1.0)
        prior = {"document_strength": np.full(shard.documents, self.strength, dtype=np.float32)}
        return {"document_topic": theta, "word_topic": phi, **(prior if self.strength else {})}


def mean_of(models: Sequence[JoinedModel], read: Callable[[JoinedModel], Floats]) -> tuple[Floats, Floats]:
    """Return the sums of matched models' values by joined topic, and the models that have each topic."""
    sums = np.zeros((0, 0))
    having = np.zeros(len(models[0].columns))
    for model in models:
        columns = [column for column in model.columns if column != ABSENT]
        values = read(model)[:, columns]
        if not sums.size:
            sums = np.zeros((len(values), having.size))
        sums[:, model.places] += values
        having[model.places] += 1.0
    return sums, having
