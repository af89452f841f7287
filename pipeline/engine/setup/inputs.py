"""Inputs of families besides words: labels, numbers and segments."""

from __future__ import annotations

from functools import lru_cache

from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.registry import load_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import LabelTable, label_table
from collapsium.storage.corpus.segments import COLUMN as SEGMENTS
from collapsium.storage.errors import OptionError


def labels_of(corpus: Corpus, family: str, config: FamilyOptions) -> LabelTable | None:
    """Read which labels and numbers a corpus has, of the fields that a family is asked to take.

    Parameters
    ----------
    corpus : Corpus
        The training corpus.
    family : str
        The family's name.
    config : FamilyOptions
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
    if not load_family(family).shard_model.uses_labels:
        return None
    fields, numbers = (tuple(getattr(config, name, ())) for name in ("labels", "covariates"))
    return _read(corpus.folder.address, corpus.manifest.digest, fields, numbers)


@lru_cache(maxsize=4)
def _read(address: str, digest: str, fields: tuple[str, ...], numbers: tuple[str, ...]) -> LabelTable:  # noqa: ARG001
    """Read a table once for the plan and the fit; a corpus that has changed has another digest."""
    return label_table(Corpus(address), fields, numbers)


def require_labels(corpus: Corpus, family: str, config: FamilyOptions) -> None:
    """Refuse a corpus without labels where a family is nothing without them.

    Parameters
    ----------
    corpus, family, config
        As for `labels_of`.

    Raises
    ------
    OptionError
        The family needs labels, and the corpus has none, or none of the fields that are taken.
    """
    if not load_family(family).requires_labels:
        return
    table = labels_of(corpus, family, config)
    if table is None or not table.names:
        raise OptionError(
            f"{corpus.url}: has no labels, and family '{family}' needs them; `ingest` with `labels` takes "
            "those of documents, `label_files` those of side files"
        )


def missing_inputs(corpus: Corpus, family: str, config: FamilyOptions) -> list[str]:
    """Return a line for what a family takes of documents and a corpus does not have.

    Parameters
    ----------
    corpus, family, config
        As for `labels_of`.

    Returns
    -------
    list of str
        Nothing, where the family has all that it takes.
    """
    lines = []
    if (
        load_family(family).shard_model.uses_segments
        and config.takes_segments
        and SEGMENTS not in corpus.manifest.fields
    ):
        lines.append(
            f"{corpus.url}: has no segments, so that each document is one segment of '{family}'; "
            "ingest with segments keeps those of texts"
        )
    table = labels_of(corpus, family, config) if config.takes_labels else None
    if table is not None and not len(table):
        lines.append(
            f"{corpus.url}: has no labels, so that '{family}' is fitted as if there were none; ingest with "
            "labels takes those of documents"
        )
    return lines
