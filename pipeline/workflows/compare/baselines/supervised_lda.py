"""Supervised LDA of tomotopy, in a process of its own.

`python -m collapsium.pipeline.workflows.compare.baselines.supervised_lda JSON` prints JSON.

Classes that are numbers are learned in two ways, of which the one with the better macro F1 on the tuning documents is
then fitted to all: one linear response, standardised, whose estimate is put to the nearest class; and a binary
response a class, of which the largest estimate is taken. Other classes are learned in the second way.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.workflows.compare.baselines.base import print_result
from collapsium.pipeline.workflows.compare.baselines.classifiers import Known, Lesson, read_known
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import LabelTable

Ints = npt.NDArray[np.int64]
LINEAR, BINARY = "linear", "binary"
VARIANCE = 10.0  # of the coefficients' prior: responses are standardised, and proportions small
INFERRED = 100  # iterations in which an unseen document's topics are drawn


def tokens(known: Known, row: int) -> list[str]:
    """Return a document's words by their numbers, each as often as it occurs."""
    first, last = known.words.indptr[row], known.words.indptr[row + 1]
    counts = known.words.data[first:last].astype(np.int64)
    return [str(word) for word in np.repeat(known.words.indices[first:last], counts).tolist()]


def responses(way: str, classes: list[Any], target: Ints) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the kinds of the response variables, and their values, shape (documents, variables)."""
    if way == BINARY:
        return "b" * len(classes), np.eye(len(classes))[target]
    numbers = np.array([float(one) for one in classes])
    each = numbers[target]
    return "l", ((each - each.mean()) / (each.std() or 1.0))[:, np.newaxis]


def chosen(way: str, classes: list[Any], target: Ints, estimates: npt.NDArray[np.float64]) -> Ints:
    """Return the class that each estimate, shape (documents, variables), speaks for."""
    if way == BINARY:
        return np.asarray(estimates.argmax(axis=1), dtype=np.int64)
    numbers = np.array([float(one) for one in classes])
    each = numbers[target]
    value = estimates[:, :1] * (each.std() or 1.0) + each.mean()
    return np.asarray(np.abs(value - numbers).argmin(axis=1), dtype=np.int64)


def fitted(
    way: str, train: Known, rows: Ints, target: Ints, classes: list[Any], asked: list[list[str]], given: Any
) -> Ints:
    """Fit to some documents, and classify others; those without a word that it knows get the most frequent class."""
    import tomotopy

    kinds, values = responses(way, classes, target)
    model = tomotopy.SLDAModel(
        k=given.topics,
        vars=kinds,
        alpha=0.1,
        eta=100.0 / train.words.shape[1],
        nu_sq=[VARIANCE] * len(kinds),
        seed=given.seed % 2**32,
    )
    for row, own in zip(rows.tolist(), values.tolist(), strict=True):
        model.add_doc(tokens(train, row), y=own)
    model.train(given.iterations, workers=given.workers)
    known = set(model.used_vocabs)
    found = np.full(len(asked), np.bincount(target).argmax(), dtype=np.int64)
    able = [place for place, words in enumerate(asked) if known.intersection(words)]
    if able:
        documents = [model.make_doc(asked[place]) for place in able]
        model.infer(documents, iterations=INFERRED, workers=given.workers)
        estimates = np.array([model.estimate(one) for one in documents]).reshape(len(able), len(kinds))
        found[able] = chosen(way, classes, target, estimates)
    return found


def classified(given: SimpleNamespace) -> dict[str, Any]:
    """Learn, and classify.

    Parameters
    ----------
    given : types.SimpleNamespace
        ``train``, ``unseen``, ``field``, ``numeric``, ``topics``, ``iterations``, ``seed`` and ``workers``.

    Returns
    -------
    dict
        ``predicted``, a class of each unseen document, and ``tuned``, the way that was taken.
    """
    from sklearn.metrics import f1_score

    train, unseen = (
        read_known(Corpus(url), given.field, numeric=given.numeric, table=LabelTable())
        for url in (given.train, given.unseen)
    )
    lesson = Lesson.of(train, given.seed, given.train)
    ways = [BINARY]
    try:
        [float(one) for one in lesson.classes]
        ways.insert(0, LINEAR)
    except ValueError:
        pass
    best = dict.fromkeys(ways, 0.0)
    if len(ways) > 1:
        learning, tuning = ~lesson.tuning, lesson.tuning
        asked = [tokens(train, row) for row in lesson.rows[tuning].tolist()]
        for way in ways:
            found = fitted(way, train, lesson.rows[learning], lesson.target[learning], lesson.classes, asked, given)
            best[way] = float(f1_score(lesson.target[tuning], found, average="macro", zero_division=0.0))
    way = max(ways, key=best.__getitem__)
    asked = [tokens(unseen, row) for row in range(unseen.words.shape[0])]
    found = fitted(way, train, lesson.rows, lesson.target, lesson.classes, asked, given)
    return {"predicted": [lesson.classes[one] for one in found.tolist()], "tuned": {"response": way}}


if __name__ == "__main__":
    print_result(classified)
