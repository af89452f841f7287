"""What is known of the documents that a fit is of, where its family takes that."""

from __future__ import annotations

from functools import lru_cache

from collapsar.pipeline.contract import FamilyConfig
from collapsar.storage.corpus import Corpus
from collapsar.storage.labeltable import LabelTable, label_table
from collapsar.workers.contract import is_labelled


def labels_of(corpus: Corpus, family: str, config: FamilyConfig) -> LabelTable | None:
    """Read which labels and numbers a corpus has, of the fields that a family is asked to take.

    Parameters
    ----------
    corpus : Corpus
        The training corpus.
    family : str
        The family's name.
    config : FamilyConfig
        Its options; ``labels`` names fields, none for all, and ``covariates`` those of numbers.

    Returns
    -------
    LabelTable or None
        None of a family that takes none.

    Raises
    ------
    OptionError
        The corpus has no such field.
    """
    if not is_labelled(family):
        return None
    fields, numbers = (tuple(getattr(config, name, ())) for name in ("labels", "covariates"))
    return _read(corpus.folder.address, corpus.manifest.digest, fields, numbers)


@lru_cache(maxsize=4)
def _read(address: str, digest: str, fields: tuple[str, ...], numbers: tuple[str, ...]) -> LabelTable:  # noqa: ARG001
    """Read a table once for the plan and the fit; a corpus that has changed has another digest."""
    return label_table(Corpus(address), fields, numbers)
