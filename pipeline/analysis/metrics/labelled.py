"""Metrics of how well topics agree with labels: purity, mutual information, Rand index, accuracy of a classifier.

The first three compare documents' largest topics with labels; the classifier predicts labels from proportions.

The functions import scikit-learn themselves: the import takes a second, for which commands without labels should not
wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.label_prediction import table_of
from collapsium.pipeline.analysis.metrics.catalogue import Metric
from collapsium.pipeline.analysis.metrics.measurement import Job, Measurement, measurement
from collapsium.pipeline.executors.base import Executor, Future, in_order
from collapsium.pipeline.fitted_model import load_blocks, parts_for
from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.labels import Labels
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import InputError, OptionError, optional, suggestion
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream

MISSING = "agreement with labels needs scikit-learn, which is not installed: pip install 'collapsium[sklearn]'"


AnyLabels = AnyArray

FOLDS = 5  # Folds of the cross-validation of the linear classifier, and least documents of a label
MAX_STEPS = 1000  # Steps of the classifier's fit, at most


def purity(labels: AnyLabels, clusters: Ints) -> float:
    """Return the share of documents whose label is the most frequent one of their cluster (Manning et al. 2008).

    Parameters
    ----------
    labels : numpy.ndarray, shape (documents,)
        Label of each document, a number or a text.
    clusters : numpy.ndarray of int64, shape (documents,)
        Cluster of each document, such as its largest topic.

    Returns
    -------
    float
        From 0 to 1.
    """
    with optional("sklearn", MISSING):
        from sklearn import metrics

    table = metrics.cluster.contingency_matrix(labels, clusters)
    return float(table.max(axis=0).sum() / table.sum())


def normalised_mutual_information(labels: AnyLabels, clusters: Ints) -> float:
    """Return the mutual information divided by the mean of both entropies, as scikit-learn defines it."""
    with optional("sklearn", MISSING):
        from sklearn import metrics

    return float(metrics.normalized_mutual_info_score(labels, clusters))


def adjusted_rand_index(labels: AnyLabels, clusters: Ints) -> float:
    """Return the share of pairs of documents on which both agree, adjusted for chance (Hubert and Arabie 1985)."""
    with optional("sklearn", MISSING):
        from sklearn import metrics

    return float(metrics.adjusted_rand_score(labels, clusters))


def linear_accuracy(labels: AnyLabels, proportions: Floats, seed: int = 0) -> float:
    """Return the accuracy of logistic regression on proportions, by cross-validation.

    Parameters
    ----------
    labels : numpy.ndarray, shape (documents,)
        Label of each document. Labels of fewer documents than there are folds are left out.
    proportions : numpy.ndarray of float64, shape (documents, topics)
        Topic proportions.
    seed : int, optional
        Seed of the folds.

    Returns
    -------
    float
        Share of documents whose label is predicted by a classifier fitted to the other folds; NaN if fewer than two
        labels are left.
    """
    with optional("sklearn", MISSING):
        from sklearn import linear_model, model_selection

    _, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    chosen = sizes[place] >= FOLDS
    labels, proportions = labels[chosen], proportions[chosen]
    if np.unique(labels).size < 2:
        return float("nan")
    folds = model_selection.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    predicted = model_selection.cross_val_predict(
        linear_model.LogisticRegression(max_iter=MAX_STEPS), proportions, labels, cv=folds
    )
    return float((predicted == labels).mean())


def unseen_accuracy(labels: AnyLabels, proportions: Floats, unseen_labels: AnyLabels, unseen: Floats) -> float:
    """Return the accuracy on unseen documents of logistic regression that is fitted to training documents.

    Parameters
    ----------
    labels : numpy.ndarray, shape (documents,)
        Label of each training document.
    proportions : numpy.ndarray of float64, shape (documents, topics)
        Their topic proportions.
    unseen_labels : numpy.ndarray, shape (unseen documents,)
        Label of each unseen document.
    unseen : numpy.ndarray of float64, shape (unseen documents, topics)
        Their topic proportions.

    Returns
    -------
    float
        Share of unseen documents whose label is predicted; NaN if the training documents have fewer than two labels.
    """
    with optional("sklearn", MISSING):
        from sklearn import linear_model

    if np.unique(labels).size < 2:
        return float("nan")
    classifier = linear_model.LogisticRegression(max_iter=MAX_STEPS).fit(proportions, labels)
    return float((classifier.predict(unseen) == unseen_labels).mean())


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Documents, on average, that the classifier is fitted to or tested on, to bound memory and time
CLASSIFIED_DOCUMENTS = 50_000
AGREEMENTS = {
    "purity": purity,
    "nmi": normalised_mutual_information,
    "ari": adjusted_rand_index,
}


@dataclass(frozen=True)
class LabelledDocuments:
    """Documents with exactly one label of a field and a known word."""

    labels: npt.NDArray[np.str_]  # Their labels; (documents,)
    topics: Ints  # Their largest topics; int64 (documents,)
    sample: npt.NDArray[np.bool_]  # Whether the classifier uses each; bool (documents,)
    proportions: Floats  # Proportions of those that it uses; float64 (documents of the sample, topics)

    def __sizeof__(self) -> int:
        return self.labels.nbytes + self.topics.nbytes + self.sample.nbytes + self.proportions.nbytes


def field_of(corpus: Corpus, field: str | None) -> str:
    """Return the field of labels to compare topics with."""
    fields = sorted({name for reference in corpus.references for name, _ in reference.labels().names})
    if not fields:
        raise OptionError(f"{corpus.url}: needs documents with labels; ingest them with `labels` or `label_files`")
    if field is None and len(fields) > 1:
        raise OptionError(f"{corpus.url}: has several fields of labels ({', '.join(fields)}); name one (`label_field`)")
    if field is not None and field not in fields:
        raise OptionError(f"{corpus.url}: has no field of labels '{field}'{suggestion(field, fields)}", "label_field")
    return field or fields[0]


def measure_with_labels(
    metrics: Sequence[Metric], job: Job, field: str, corpus: Corpus, *, unseen: bool, training: Corpus | None = None
) -> list[Measurement]:
    """Measure how topic proportions agree with labels."""
    classifier = any(metric.name not in AGREEMENTS for metric in metrics)
    values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    placeholders: Mapping[str, str] = {}
    for _, model in job.named:
        measured = _documents(model, corpus, field, job, classifier=classifier, folded=unseen)
        if not measured.labels.size:
            raise InputError(corpus.url, f"expected documents with words and exactly one label of '{field}'")
        fitted = None
        if classifier and unseen and training is not None:
            fitted = _documents(model, training, field, job, classifier=True, folded=False)
        kind = "unseen documents" if unseen else "training documents"
        used, documents = int(measured.sample.sum()), corpus.manifest.documents
        labelled = f"the {measured.labels.size:,} of {documents:,} {kind} that have words and one label '{field}'"
        if field in {name for name, _ in table_of(model).names}:
            labelled += ", a field that the model was fitted with"
        if fitted is None:
            how = f"by {FOLDS}-fold cross-validation of {used:,} {kind} that have one label '{field}'"
        else:
            known = f"{int(fitted.sample.sum()):,} training documents"
            how = f"fitted to {known}, on {used:,} unseen ones, of label '{field}'"
        placeholders = {"labelled": labelled, "classified": how}
        labels, proportions = measured.labels[measured.sample], measured.proportions
        for metric in metrics:
            if metric.name in AGREEMENTS:
                value = AGREEMENTS[metric.name](measured.labels, measured.topics)
            elif fitted is None:
                value = linear_accuracy(labels, proportions, job.seed)
            else:
                value = unseen_accuracy(fitted.labels[fitted.sample], fitted.proportions, labels, proportions)
            if np.isnan(value):
                raise InputError(corpus.url, f"expected two or more labels of {FOLDS} documents or more")
            values[metric.name].append(value)
    return [measurement(metric, job.named, values[metric.name], placeholders) for metric in metrics]


def _documents(
    model: Model, corpus: Corpus, field: str, job: Job, *, classifier: bool, folded: bool
) -> LabelledDocuments:
    """Return the labelled documents of a corpus with their proportions: folded in, or as training left them."""
    share = min(1.0, CLASSIFIED_DOCUMENTS / max(corpus.manifest.documents, 1)) if classifier else 0.0
    executor: Executor = job.executor
    blocks: list[Future[tasks.Block]] = load_blocks(model, executor) if folded else []
    how, parts, done = (blocks, field, share, job.seed), list[LabelledDocuments](), 0
    submitted = (executor.submit(_labelled, model.folder.address, shard, *how) for shard in corpus.references)
    for shard, part in zip(corpus.references, in_order(executor, submitted, 2 * executor.workers), strict=True):
        parts.append(part)
        done += shard.record.documents
        job.progress(done)
    names = [name.name for name in fields(LabelledDocuments)]
    return LabelledDocuments(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _labelled(
    url: str, reference: ShardReference, blocks: list[tasks.Block], field: str, share: float, seed: int
) -> LabelledDocuments:
    model = Model(url)
    shard = reference.load(**parts_for(model))
    if blocks:
        if isinstance(shard, Shard) and shard.labels is not None:
            # A label must not help to fit the proportions that are compared with it.
            shard = replace(shard, labels=shard.labels.without(field))
        local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(seed, "infer"))
    else:
        local = model.local_state(reference.number)
    theta = np.asarray(model.family.infer(local, model.global_state)["document_topic"], dtype=np.float64)
    rows, values = single_labels(reference.labels(), field)
    chosen = shard.lengths[rows] > 0
    rows, values = rows[chosen], values[chosen]
    drawn = Stream(seed, "classified documents", place=reference.number).generator().random(shard.documents)
    sample = drawn[rows] < share
    return LabelledDocuments(values, theta[rows].argmax(axis=1), sample, theta[rows[sample]])


def single_labels(labels: Labels, field: str) -> tuple[Ints, npt.NDArray[np.str_]]:
    """Return the documents with exactly one label of a field, and their labels."""
    documents = labels.offsets.size - 1
    of_field = np.array([name == field for name, _ in labels.names], dtype=bool)
    names = np.array([value for _, value in labels.names], dtype=np.str_)
    if not of_field.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.str_)
    owner = np.repeat(np.arange(documents), np.diff(labels.offsets))
    in_field = of_field[labels.position]
    owner, position = owner[in_field], labels.position[in_field]
    single = np.bincount(owner, minlength=documents)[owner] == 1
    return owner[single], names[position[single]]
