"""The functions that compute a model's arrays, which are a layer above the models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


class ModelArrays(Protocol):
    """The functions of `pipeline.analysis.model_arrays`, which is a layer above this one."""

    def topic_word(self, model: object) -> npt.NDArray[np.float64]:
        """Return the probabilities of words."""

    def document_topic(self, model: object) -> npt.NDArray[np.float64]:
        """Return the proportions of the training documents."""

    def document_ids(self, model: object) -> list[str]:
        """Return the ids of the training documents."""

    def topics_frame(self, model: object, words: int, **ranking: object) -> pd.DataFrame:
        """Return the topics as a data frame."""

    def document_topics_frame(self, model: object) -> pd.DataFrame:
        """Return the proportions as a data frame."""

    def transform(self, model: object, texts: object, *, seed: int, **reading: object) -> npt.NDArray[np.float64]:
        """Return the proportions of new documents."""


def model_arrays() -> ModelArrays:
    """Return the module of the layer above that computes arrays of a model, imported at the first use."""
    return cast(ModelArrays, importlib.import_module("collapsium.pipeline.analysis.model_arrays"))
