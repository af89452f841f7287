"""Inputs of families besides words: labels, covariates and segments."""

from __future__ import annotations

from functools import lru_cache

from collapsium.pipeline.engine.setup.word_weights import unknown_words
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.building.label_split import covariates_of
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import LabelTable, label_table
from collapsium.storage.corpus.segments import COLUMN as SEGMENTS
from collapsium.storage.errors import OptionError
from collapsium.workers.families.family import FamilyOptions


def labels_of(corpus: Corpus, family: str, config: FamilyOptions) -> LabelTable | None:
    """Return the labels and covariates of a corpus, of the fields that the options name."""
    if not load_family(family).shard_model.uses_labels:
        return None
    fields, numbers = (tuple(getattr(config, name, ())) for name in ("labels", "covariates"))
    return _read(corpus.folder.address, corpus.manifest.digest, fields, numbers)


@lru_cache(maxsize=4)
def _read(address: str, digest: str, fields: tuple[str, ...], numbers: tuple[str, ...]) -> LabelTable:  # noqa: ARG001
    """Read a table, once for the estimate and the fit; a corpus that has changed has another digest."""
    return label_table(Corpus(address), fields, numbers)


def require_labels(corpus: Corpus, family: str, config: FamilyOptions) -> None:
    """Raise an error if a family requires labels and a corpus has none."""
    if not load_family(family).requires_labels:
        return
    table = labels_of(corpus, family, config)
    if table is None or not table.names:
        raise OptionError(
            f"{corpus.url}: has no labels, and family '{family}' requires them; `ingest` reads labels of documents "
            "with `labels`, and those of side files with `label_files`"
        )


def missing_inputs(corpus: Corpus, family: str, config: FamilyOptions) -> list[str]:
    """Return a line for each input that a family uses and a corpus does not have, or that the options leave unused."""
    unknown = unknown_words(corpus, config)
    lines = [] if unknown is None else [unknown]
    if (
        load_family(family).shard_model.uses_segments
        and config.takes_segments
        and SEGMENTS not in corpus.manifest.fields
    ):
        lines.append(
            f"{corpus.url}: has no segments, so that each document is one segment of '{family}'; "
            "ingest with segments keeps those of texts"
        )
    numbers = covariates_of(corpus.manifest.fields) if config.covariates_need else ()
    if numbers:
        lines.append(
            f"{corpus.url}: its covariates ({', '.join(numbers)}) are not used; '{family}' uses them with "
            f"{config.covariates_need}"
        )
    table = labels_of(corpus, family, config) if config.takes_labels else None
    if table is not None and not len(table):
        lines.append(
            f"{corpus.url}: has no labels, so that '{family}' is fitted as if there were none; ingest with "
            "labels takes those of documents"
        )
    return lines
