"""Inputs of families besides the counts of words: labels, covariates, segments, seeds and weights of words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.state import Shards
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.building.split import covariates_of
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.labels import MOST_VALUES, LabelTable, Name, NumberField
from collapsium.storage.corpus.labels import SEGMENT_COLUMN as SEGMENTS
from collapsium.storage.corpus.parquet import LABEL_COLUMN
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.corpus.vocabulary import Vocabulary, as_spelled_in, named_unknown
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.workers import special_functions as special
from collapsium.workers.design import (
    DATE,
    CheckedFormula,
    FieldCounts,
    check_formula,
    count_fields,
    fields_of,
    model_design,
    require_formulaic,
    scaled_design,
    unpacked_design,
)
from collapsium.workers.families.document_entries import WordWeights
from collapsium.workers.families.family import DesignTable, FamilyOptions, SeedTable
from collapsium.workers.families.word_weights import LOG_TF_IDF, WeightedOptions, WeightTable
from collapsium.workers.kernels.prediction import weighted_sums
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

Vector = npt.NDArray[np.float64]
SEEDS, WEIGHTS = "seeds", "weights"  # Options that name words
PREVALENCE = "prevalence"  # Option of a formula of fields
# Least weight of a word, as a share of the mean over the tokens. A word in all documents then still has
# responsibilities, from which its plain tokens in each topic are known.
SMALLEST_WEIGHT = 1e-3
# Share of a table's words that the vocabulary may lack: more are a table for another vocabulary
UNKNOWN_SHARE = 0.5


def labels_of(corpus: Corpus, family: str, config: FamilyOptions) -> LabelTable | None:
    """Return the labels and covariates of a corpus, of the fields that the options name."""
    if not load_family(family).uses_labels:
        return None
    fields, numbers = (tuple(getattr(config, name, ())) for name in ("labels", "covariates"))
    return _label_table(corpus.folder.address, corpus.manifest.digest, fields, numbers)


@lru_cache(maxsize=4)
def _label_table(address: str, digest: str, fields: tuple[str, ...], numbers: tuple[str, ...]) -> LabelTable:  # noqa: ARG001
    """Read a table, once for the estimate and the fit; a corpus that has changed has another digest."""
    return label_table(Corpus(address), fields, numbers)


def label_table(corpus: Corpus, fields: Sequence[str] = (), numbers: Sequence[str] = ()) -> LabelTable:
    """Return the table of the labels and covariates of a corpus, without decoding ids and words."""
    counts = Counter[Name]()
    values: dict[str, list[npt.NDArray[np.float64]]] = {name: [] for name in numbers}
    known_fields, known_columns = set[str](), set[str]()
    max_labels = labelled = 0
    for reference in corpus.references:
        labels = reference.labels()
        known_fields |= {name for name, _ in labels.names}
        known_columns |= set(labels.numbers)
        for name in known_fields - set(fields) if fields else ():
            labels = labels.without(name)
        label_counts = np.diff(labels.offsets)
        occurrences = np.bincount(labels.position, minlength=len(labels.names)).tolist()
        counts.update({name: count for name, count in zip(labels.names, occurrences, strict=True) if count})
        has = label_counts > 0
        for name, parts in values.items():
            column = labels.numbers.get(name)
            if column is not None:
                parts.append(column[~np.isnan(column)])
                has = has | ~np.isnan(column)
        max_labels = max(max_labels, int(label_counts.max(initial=0)))
        labelled += int(has.sum())
    for option, names, known in (("labels", fields, known_fields), ("covariates", numbers, known_columns)):
        for name in names:
            if name not in known:
                raise OptionError(f"`{option}` {name}: {corpus.url} has no such field{suggestion(name, known)}")
    covariates = tuple(_number_field(corpus, name, np.concatenate(values[name])) for name in numbers)
    ordered = tuple(sorted(counts))
    return LabelTable(ordered, tuple(counts[name] for name in ordered), covariates, max_labels, labelled)


def _number_field(corpus: Corpus, name: str, values: npt.NDArray[np.float64]) -> NumberField:
    """Return the summary of a numeric covariate."""
    if not np.isfinite(values).all():
        raise InputError(corpus.url, f"expected finite numbers as covariate '{name}'")
    if not values.size:
        return NumberField(name, 0, 0.0, 1.0, 0.0, ())
    distinct = np.unique(values)
    distinct_values = tuple(distinct.tolist()) if distinct.size <= MOST_VALUES else ()
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(values.std()) if distinct.size > 1 else 1.0
        mean = float(values.mean())
    if not (math.isfinite(mean) and 0 < deviation < math.inf):
        raise InputError(
            corpus.url,
            f"the numbers of covariate '{name}' are too large or too close to one another; rescale them",
        )
    largest = float(np.abs(values - mean).max()) / deviation
    return NumberField(name, int(values.size), mean, deviation, largest, distinct_values)


def require_labels(corpus: Corpus, family: str, config: FamilyOptions) -> None:
    """Raise an error if a family requires labels and a corpus has none."""
    if not load_family(family).requires_labels:
        return
    table = labels_of(corpus, family, config)
    if table is None or not table.names:
        raise OptionError(
            f"{corpus.url}: has no labels, and family '{family}' requires them; `ingest` reads labels of documents "
            "with `labels`, and the labels of side files with `label_files`"
        )


def used_fields(corpus: Corpus, family: str, config: FamilyOptions) -> str | None:
    """Return a line on the documents' fields that enter a model; None for a corpus without fields."""
    numbers = covariates_of(corpus.manifest.fields)
    labels, date = ([name] if name in corpus.manifest.fields else [] for name in (LABEL_COLUMN, DATE))
    stored = [*labels, *numbers, *date]
    if not stored:
        return None
    formula, used, hint = prevalence_of(config), [], ""
    if formula is not None:
        used = formula.names
    elif load_family(family).uses_labels and config.takes_labels:
        used = [*(getattr(config, LABEL_COLUMN, ()) or labels)]
        if not config.covariates_need:
            used += [*(getattr(config, "covariates", ()) or numbers)]
        elif numbers:
            hint = f"; '{family}' uses covariates with {config.covariates_need}"
    elif PREVALENCE in type(config).model_fields:
        hint = "; it follows those that `prevalence` names"
    names = ", ".join(used) or "none"
    return f"{corpus.url}: of the documents' fields ({', '.join(stored)}), the model uses {names}{hint}"


def missing_inputs(corpus: Corpus, family: str, config: FamilyOptions) -> list[str]:
    """Return a line for each input that a family uses and a corpus does not have, or that the options leave unused."""
    unknown = unknown_words(corpus, config)
    lines = [] if unknown is None else [unknown]
    if load_family(family).uses_segments and config.takes_segments and SEGMENTS not in corpus.manifest.fields:
        lines.append(
            f"{corpus.url}: has no segments, so that each document is one segment of '{family}'; "
            "ingest with segments keeps the segments of texts"
        )
    used = used_fields(corpus, family, config)
    lines += [] if used is None else [used]
    table = labels_of(corpus, family, config) if config.takes_labels else None
    if table is not None and not len(table):
        lines.append(
            f"{corpus.url}: has no labels, so that '{family}' is fitted as if there were none; ingest with "
            "labels takes the labels of documents"
        )
    return lines


@contextmanager
def _option_named() -> Iterator[None]:
    """Name the option in errors of a formula, which other commands take by another name."""
    try:
        yield
    except OptionError as error:
        raise OptionError(error.message, PREVALENCE) from None


def prevalence_of(config: FamilyOptions) -> CheckedFormula | None:
    """Return the formula that the documents' priors follow; raise an error for whatever is not allowed in one."""
    formula = getattr(config, PREVALENCE, None)
    if formula is None:
        return None
    with _option_named():
        checked = check_formula(formula)
    require_formulaic()
    return checked


def design_of(corpus: Corpus, config: FamilyOptions, executor: Executor) -> DesignTable | None:
    """Return the design that the documents' priors follow, without the reach of its terms; None without one.

    Takes two passes over the fields of the corpus: their values, and the products of the columns.
    """
    formula = prevalence_of(config)
    if formula is None:
        return None
    counts: dict[str, FieldCounts] = {}
    known: set[str] = set()
    with _option_named():
        # In the order of the shards, so that sums have the same bits for any executor.
        counting = [executor.submit(count_shard_fields, reference, formula.names) for reference in corpus.references]
        for of_shard, names in executor.collect(counting):
            counts = {name: counts[name] + field if name in counts else field for name, field in of_shard.items()}
            known |= names
        design = model_design(formula, counts, corpus.manifest.documents, known)
        packed, gram = design.packed(), np.zeros((design.center.size, design.center.size))
        for products in executor.collect(
            [executor.submit(shard_products, reference, packed) for reference in corpus.references]
        ):
            gram += products
        design = scaled_design(design, gram)
    sizes = [len(levels) for levels in design.design.shrunken.values()]
    level_field = np.repeat(np.arange(len(sizes)), sizes).astype(np.int64)
    return DesignTable(design.packed(), design.terms, np.zeros(int(design.terms.max(initial=-1)) + 1), level_field)


def count_shard_fields(reference: ShardReference, names: Sequence[str]) -> tuple[dict[str, FieldCounts], set[str]]:
    """Return the counts of some fields of a shard's documents, and the names of all fields."""
    place = f"{reference.folder.url}/{reference.record.file}"
    return count_fields(reference.further(), reference.record.documents, names, place)


def shard_products(reference: ShardReference, packed: npt.NDArray[np.uint8]) -> Vector:
    """Return X'X of a shard's documents."""
    design, documents = unpacked_design(packed), reference.record.documents
    fields = fields_of(reference.further(), documents, design.design.formula.names, reference.folder.url)
    rows = np.ascontiguousarray(design.rows(fields, documents))
    products = np.zeros((rows.shape[1], rows.shape[1]))
    weighted_sums(rows, rows, products)
    return products


def reached(design: DesignTable, executor: Executor, shards: Shards) -> DesignTable:
    """Return a design with the largest sum of absolute values over the columns of each term."""
    reach = executor.collect([executor.submit(shard_reach, shard, design.terms) for shard in shards])
    return replace(design, reach=np.max([design.reach, *reach], axis=0))


def shard_reach(shard: AnyShard | ShardOnDisk, terms: npt.NDArray[np.int64]) -> Vector:
    """Return the largest sum of absolute values over the columns of each term, over a shard's documents."""
    opened, reach = open_shard(shard), np.zeros(int(terms.max()) + 1)
    if isinstance(opened, Shard) and opened.design is not None:
        rows = np.abs(opened.design.rows[:, : terms.size].astype(np.float64))
        for term in range(reach.size):
            reach[term] = rows[:, terms == term].sum(axis=1).max(initial=0.0)
    return reach


def seeds_of(corpus: Corpus, config: FamilyOptions) -> SeedTable | None:
    """Return the pseudo-counts of seeded topics."""
    seeds = getattr(config, SEEDS, ())
    return _seed_table(corpus.folder.address, corpus.manifest.digest, seeds) if seeds else None


@lru_cache(maxsize=4)
def _seed_table(address: str, digest: str, seeds: Sequence[Any]) -> SeedTable:  # noqa: ARG001
    """Return the pseudo-counts, once for the check and the fit; a corpus that has changed has another digest."""
    vocabulary = Corpus(address).vocabulary
    ids = {word: number for number, word in enumerate(vocabulary.words)}
    named_words = list(dict.fromkeys(word for topic in seeds for word in topic.words))
    spelling = dict(zip(named_words, as_spelled_in(vocabulary.words, named_words), strict=True))
    unknown = [word for word in named_words if spelling[word] not in ids]
    if unknown:
        named = named_unknown(unknown, vocabulary.words)
        raise OptionError(f"expected words of the vocabulary; it has no {named}", SEEDS)
    entries = [(k, ids[spelling[word]], topic.strength) for k, topic in enumerate(seeds) for word in topic.words]
    topics, words, strength = (np.array(values) for values in zip(*entries, strict=True))
    # Words that were appended to a vocabulary may have no tokens yet.
    counts = strength.astype(np.float64) * np.maximum(vocabulary.tokens[words], 1)
    return SeedTable(topics.astype(np.int64), words.astype(np.int64), counts)


def unknown_words(corpus: Corpus, config: FamilyOptions) -> str | None:
    """Return a line on the words of a table of weights that a vocabulary does not have; None if it has all.

    A table that leaves no token of the corpus a weight is refused.
    """
    table = getattr(config, WEIGHTS, None)
    if not isinstance(table, WeightTable):
        return None
    vocabulary = corpus.vocabulary.words
    words = as_spelled_in(vocabulary, table.words)
    weightless = {word for word, weight in zip(words, table.weights, strict=True) if not weight}
    if all(word in weightless for word, tokens in zip(vocabulary, corpus.vocabulary.tokens, strict=True) if tokens):
        raise OptionError("expected a weight above 0 for a word of the corpus; all weigh 0", WEIGHTS)
    known = set(vocabulary)
    unknown = [word for word in words if word not in known]
    if not unknown:
        return None
    named = named_unknown(unknown, vocabulary)
    if len(unknown) > UNKNOWN_SHARE * len(table.words):
        raise OptionError(
            f"expected words of the vocabulary of {corpus.url}; it lacks {len(unknown):,} of {len(table.words):,}: "
            f"{named}",
            WEIGHTS,
        )
    return f"weights of words that the vocabulary does not have are left out: {named}"


def weights_of(corpus: Corpus, config: FamilyOptions, executor: Executor, shards: Shards) -> WordWeights | None:
    """Return the weights of the words of a corpus, scaled so that their sum over the tokens is the number of tokens."""
    if not isinstance(config, WeightedOptions) or config.weights is None:
        return None
    sums = np.zeros((2, corpus.manifest.vocabulary.words))
    if config.weights in (LOG_TF_IDF, "entropy"):
        # In the order of the shards, so that sums have the same bits for any executor.
        for words, of_shard in executor.collect([executor.submit(count_sums, shard) for shard in shards]):
            sums[:, words] += of_shard
    weights = _formula(config.weights, corpus.vocabulary, corpus.manifest.documents, sums[1])
    tokens = corpus.vocabulary.tokens.astype(np.float64)
    # Tokens of a pair of one token each weigh log 2 for words that do not occur.
    counted = np.where(tokens > 0, sums[0], special.log(2.0)) if config.log_counts else np.maximum(tokens, 1.0)
    per_token = counted / np.maximum(tokens, 1.0)
    total = float(tokens.sum())
    mean = float((weights * tokens).sum()) / total
    weights = np.maximum(weights, SMALLEST_WEIGHT * mean) if mean > 0.0 else np.ones_like(weights)
    weights *= total / float((weights * per_token * tokens).sum())
    return WordWeights(weights.astype(np.float32), (weights * per_token).astype(np.float32))


def count_sums(shard: AnyShard | ShardOnDisk) -> tuple[npt.NDArray[np.int32], Vector]:
    """Return the words of a shard and, for each, the sums over its pairs of log(1 + c) and of c log c."""
    opened = open_shard(shard)
    if not isinstance(opened, Shard):
        raise TypeError("expected a shard of documents")
    counts = opened.counts.astype(np.float64)
    terms = special.log1p(counts), counts * special.log(counts)
    sums = [np.bincount(opened.position, weights=values, minlength=opened.words.size) for values in terms]
    return opened.words, np.stack(sums)


def _formula(weights: str | WeightTable, vocabulary: Vocabulary, documents: int, count_logs: Vector) -> Vector:
    """Return the weights of words before they are scaled."""
    # idf is log(D / D_w), of D documents of which D_w have word w; Sparck Jones (1972). The entropy's is
    # 1 + sum_d p_dw log p_dw / log D, with p_dw the share of w's tokens that document d has; Dumais (1991).
    if isinstance(weights, WeightTable):
        named = dict(zip(as_spelled_in(vocabulary.words, weights.words), weights.weights, strict=True))
        return np.array([named.get(word, 1.0) for word in vocabulary.words])
    if documents < 2:
        return np.ones(len(vocabulary.words))
    tokens = np.maximum(vocabulary.tokens.astype(np.float64), 1.0)
    if weights == "entropy":
        shares = (special.log(tokens) - count_logs / tokens) / special.log(float(documents))
        return np.maximum(1.0 - np.asarray(shares), 0.0)
    occurrences = np.clip(vocabulary.documents.astype(np.float64), 1.0, documents)
    idf: Vector = np.asarray(special.log(documents / occurrences))
    return idf
