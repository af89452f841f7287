"""Supervised LDA of tomotopy, in a process of its own.

`python -m collapsium.pipeline.workflows.compare.baselines.supervised_lda JSON` prints JSON.

Numeric classes are modelled in two ways: by one linear response, standardised, whose estimate is rounded to the nearest
class; and by a binary response for each class, of which the largest estimate wins. The way with the better macro F1 on
the tuning documents is fitted to all. Other classes are modelled in the second way.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.labels.classification import Value
from collapsium.pipeline.workflows.compare.baselines.base import print_result
from collapsium.pipeline.workflows.compare.baselines.classifiers import LabelledCorpus, TrainingExamples, read_known
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.data_types import JsonObject

Ints = npt.NDArray[np.int64]
LINEAR, BINARY = "linear", "binary"
COEFFICIENT_VARIANCE = 10.0  # Prior variance of the coefficients; responses are standardised, and proportions are small
FOLD_IN_ITERATIONS = 100  # Iterations in which the topics of an unseen document are sampled


def tokens(known: LabelledCorpus, row: int) -> list[str]:
    """Return a document's tokens, as numbers of words in text."""
    first, last = known.words.indptr[row], known.words.indptr[row + 1]
    counts = known.words.data[first:last].astype(np.int64)
    return [str(word) for word in np.repeat(known.words.indices[first:last], counts).tolist()]


def responses(way: str, classes: Sequence[Value], target: Ints) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the kinds of the response variables, and their values, shape (documents, variables)."""
    if way == BINARY:
        return "b" * len(classes), np.eye(len(classes))[target]
    numbers = np.array([float(one) for one in classes])
    values = numbers[target]
    return "l", ((values - values.mean()) / (values.std() or 1.0))[:, np.newaxis]


def chosen(way: str, classes: Sequence[Value], target: Ints, estimates: npt.NDArray[np.float64]) -> Ints:
    """Return the classes that belong to estimates of shape (documents, variables)."""
    if way == BINARY:
        return np.asarray(estimates.argmax(axis=1), dtype=np.int64)
    numbers = np.array([float(one) for one in classes])
    values = numbers[target]
    value = estimates[:, :1] * (values.std() or 1.0) + values.mean()
    return np.asarray(np.abs(value - numbers).argmin(axis=1), dtype=np.int64)


def fitted(
    way: str,
    train: LabelledCorpus,
    rows: Ints,
    target: Ints,
    classes: Sequence[Value],
    texts: list[list[str]],
    arguments: SimpleNamespace,
) -> Ints:
    """Fit to some documents, and classify texts; those without a known word get the most frequent class."""
    import tomotopy

    kinds, values = responses(way, classes, target)
    model = tomotopy.SLDAModel(
        k=arguments.topics,
        vars=kinds,
        alpha=0.1,
        eta=100.0 / train.words.shape[1],
        nu_sq=[COEFFICIENT_VARIANCE] * len(kinds),
        seed=arguments.seed % 2**32,
    )
    for row, own in zip(rows.tolist(), values.tolist(), strict=True):
        model.add_doc(tokens(train, row), y=own)
    model.train(arguments.iterations, workers=arguments.workers)
    known = set(model.used_vocabs)
    predicted = np.full(len(texts), np.bincount(target).argmax(), dtype=np.int64)
    usable = [number for number, words in enumerate(texts) if known.intersection(words)]
    if usable:
        documents = [model.make_doc(texts[number]) for number in usable]
        model.infer(documents, iterations=FOLD_IN_ITERATIONS, workers=arguments.workers)
        estimates = np.array([model.estimate(one) for one in documents]).reshape(len(usable), len(kinds))
        predicted[usable] = chosen(way, classes, target, estimates)
    return predicted


def classified(arguments: SimpleNamespace) -> JsonObject:
    """Fit supervised LDA, and classify the unseen documents."""
    train, unseen = (
        read_known(Corpus(url), arguments.field, numeric=arguments.numeric, table=LabelTable())
        for url in (arguments.train, arguments.unseen)
    )
    examples = TrainingExamples.of(train, arguments.seed, arguments.train)
    ways = [BINARY]
    try:
        [float(one) for one in examples.classes]
        ways.insert(0, LINEAR)
    except ValueError:
        pass
    best = dict.fromkeys(ways, 0.0)
    if len(ways) > 1:
        learning, tuning = ~examples.tuning, examples.tuning
        rows, target = examples.rows[learning], examples.target[learning]
        texts = [tokens(train, row) for row in examples.rows[tuning].tolist()]
        from sklearn import metrics

        for way in ways:
            predicted = fitted(way, train, rows, target, examples.classes, texts, arguments)
            best[way] = float(metrics.f1_score(examples.target[tuning], predicted, average="macro", zero_division=0.0))
    way = max(ways, key=best.__getitem__)
    texts = [tokens(unseen, row) for row in range(unseen.words.shape[0])]
    predicted = fitted(way, train, examples.rows, examples.target, examples.classes, texts, arguments)
    return {"predicted": [examples.classes[one] for one in predicted.tolist()], "tuned": {"response": way}}


if __name__ == "__main__":
    print_result(classified)
