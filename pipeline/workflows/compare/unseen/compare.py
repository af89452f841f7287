"""Comparing families on unseen documents given their labels, and with classifiers by how a field is predicted."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.infer import infer
from collapsium.pipeline.analysis.labels.classification import scored
from collapsium.pipeline.engine.leakage.documents import require_new_documents
from collapsium.pipeline.engine.leakage.lineage import require_unseen
from collapsium.pipeline.engine.setup.limits import ITERATIONS
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.keywords import checked_keywords
from collapsium.pipeline.monitoring.events import Sink, tell
from collapsium.pipeline.workflows.compare.baselines.classifiers import (
    NAMES,
    SUPERVISED,
    TOPICS,
    TOPICS_OF,
    Known,
    Lesson,
    beside_topics,
    learned,
    read_known,
    tallied,
)
from collapsium.pipeline.workflows.compare.baselines.libraries import installed
from collapsium.pipeline.workflows.compare.baselines.subprocesses import told_by
from collapsium.pipeline.workflows.compare.grid import Asked, Cell, cells_of, labelled_families, require_comparable
from collapsium.pipeline.workflows.compare.options import STARTS, shown
from collapsium.pipeline.workflows.compare.runner import CellWork
from collapsium.pipeline.workflows.compare.tables import write_rows
from collapsium.pipeline.workflows.compare.unseen.metrics import (
    CLASSES,
    ROW,
    class_rows,
    measure_unseen,
    text_of,
    told_of,
)
from collapsium.pipeline.workflows.compare.unseen.options import (
    Classing,
    Fields,
    Rival,
    able,
    others_of,
    require_scorable,
    rivals,
    variants,
)
from collapsium.pipeline.workflows.compare.unseen.plots import draw_unseen
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.errors import InputError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import RUNS, TABLE, TEXT
from collapsium.storage.short_repr import ShortRepr

MANY, ONCE = (200,), 1
CLASSES_FILE = "classes.parquet"
MOST_RESPONSES = 20  # classes of a supervised LDA, which has a response for each


@dataclass(frozen=True, repr=False)
class UnseenComparison(ShortRepr):
    """What a comparison on unseen documents came to.

    Attributes
    ----------
    folder : str
        Where it lies.
    rows : tuple of dict
        A row a cell; ``classified`` is None, or a `Classification` as a dict.
    classifiers : tuple of dict
        A row a classifier beside the families.
    left_out : tuple of str
        What could not be done, and why.
    plots : tuple of str
        Names of the pictures in ``plots``, without their endings.
    """

    folder: str
    rows: tuple[dict[str, Any], ...]
    classifiers: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...]
    plots: tuple[str, ...]


@checked_keywords()
def compare_unseen(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    unseen: str | os.PathLike[str],
    families: Sequence[str] | None = None,
    topics: Sequence[int] = MANY,
    restarts: int = ONCE,
    iterations: int = ITERATIONS,
    start_topics: Sequence[int] = STARTS,
    seed: int = 0,
    samples: int = 0,
    sample_every: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    vary: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
    field: str | None = None,
    classifiers: Sequence[str] | None = None,
    labels: Sequence[str] = (),
    without: Sequence[str] = (),
    covariates: Sequence[str] = (),
    lda_topics: Sequence[int] = (200,),
    slda_topics: Sequence[int] = (50,),
    scheduler: str = "threads",
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    tls: TLS | None = None,
    sinks: Sequence[Sink] = (),
) -> UnseenComparison:
    """Compare families by the perplexity of unseen documents given their labels, and by how they predict a field.

    Called again with the same options, it goes on where it was stopped. The classifiers read both corpora into memory.

    Parameters
    ----------
    corpus, out : str or path-like
        As for `compare`.
    unseen : str or path-like
        Documents that are not fitted, with the same vocabulary.
    families : sequence of str, optional
        By default all that take labels.
    topics, restarts, iterations, start_topics, seed, samples, sample_every, settings, vary
        As for `compare`; by default one fit of 200 topics.
    field : str, optional
        A field of labels, or a number, to predict.
    classifiers : sequence of str, optional
        Of ``lda-svm``, ``naive-bayes``, ``svm``, ``tree`` and ``slda``; by default all, where there is a field.
    labels : sequence of str, optional
        Fields of labels to take; by default all. One that says the same as the field to predict must be left out.
    without : sequence of str, optional
        Fields that are left out in a second variant of each fit.
    covariates : sequence of str, optional
        Numbers that ``lda-svm`` takes besides labels; families take those that `settings` name.
    lda_topics, slda_topics : sequence of int, optional
        Numbers of topics of ``lda-svm`` and ``slda``.
    scheduler, workers, memory, scratch, tls, sinks
        As for `fit`.

    Returns
    -------
    UnseenComparison
        The tables; the folder has them too, with plots.

    Raises
    ------
    OptionError
        An option is wrong, or another than the comparison was begun with.
    MismatchError
        The documents have another vocabulary, or are those that are fitted.
    CollapsiumError
        As for `fit`.
    """
    named = labelled_families() if families is None else families
    require_scorable(named)
    spans = tuple(topics), tuple(start_topics), restarts, iterations, samples, sample_every
    asked = Asked(tuple(named), *spans, dict(settings or {}), seed=seed, vary=vary or None)
    every = NAMES if field is not None else ()
    besides = Classing(
        field,
        tuple(every if classifiers is None else classifiers),
        tuple(labels),
        tuple(without),
        tuple(covariates),
        tuple(lda_topics),
        tuple(slda_topics),
    )
    where = {"scheduler": scheduler, "workers": workers, "memory": memory, "scratch": scratch, "tls": tls}
    return _Comparing(Corpus(corpus), Corpus(unseen), Folder(out), asked, besides, where, sinks).run()


class _Comparing(CellWork):
    """A comparison on unseen documents."""

    def __init__(
        self,
        corpus: Corpus,
        unseen: Corpus,
        folder: Folder,
        asked: Asked,
        besides: Classing,
        where: dict[str, Any],
        sinks: Sequence[Sink],
    ) -> None:
        super().__init__(corpus, folder, asked, where, sinks)
        self._unseen, self._besides = unseen, besides
        self._others: list[dict[str, Any]] = []
        self._read: tuple[Lesson, Known, Known] | None = None

    def run(self) -> UnseenComparison:
        """Fit what is not fitted yet, and write tables and plots."""
        require_comparable(self._corpus, self._asked)
        cells = cells_of(self._asked, len(self._corpus.manifest.shards))
        self._require_unseen()
        self._fields = Fields.of(self._corpus, self._besides)
        cells, others = variants(cells, self._fields, self._besides), rivals(self._besides, self._fields)
        self._check_where()
        self._require_not_there()
        digests = {"corpus": self._corpus.manifest.digest, "heldout": None, "unseen": self._unseen.manifest.digest}
        record = {**self._asked.record(), **self._besides.record(), **digests}
        return self._within(record, lambda: self._work(cells, others))

    def _require_unseen(self) -> None:
        unseen, corpus = self._unseen, self._corpus
        unseen.require_vocabulary_of(corpus.manifest.vocabulary.words_sha256, corpus.url)
        require_unseen(lineage_of(corpus), unseen, f"the training corpus {corpus.url}")
        for one in (corpus, unseen):
            if not one.manifest.tokens:
                raise InputError(one.url, "has no tokens, so that nothing can be fitted or scored")

    def _require_not_there(self) -> None:
        """Refuse documents that are fitted, by what is in them; labels count, as all families take them."""
        name = f"the training corpus {self._corpus.url}"
        executor = open_executor("serial", None)
        try:
            require_new_documents(self._corpus, self._unseen, name, executor, labelled=True)
        finally:
            executor.close()

    def _work(self, cells: Sequence[Cell], others: Sequence[Rival]) -> UnseenComparison:
        self._foretell(cells, [one.name for one in others])
        field = self._besides.field
        for cell in cells:
            if field is not None and not able(cell, self._fields, field):
                self._leave_out(f"{cell.name} does not take '{field}', and cannot predict it")
            self._do(cell, cell)
        for one in others:
            self._classify(one)
        vary, place = self._asked.vary or {}, self._folder / "plots"
        plots = self._finish(cells, lambda _: draw_unseen(self._rows, self._others, vary, place))
        return UnseenComparison(self._folder.url, tuple(self._rows), tuple(self._others), tuple(self._left_out), plots)

    def _measure(self, cell: Cell) -> dict[str, Any]:
        near, field = self._reading, self._besides.field
        executor = open_executor(near.scheduler, near.workers, tls=near.tls)
        try:
            known = field if field is not None and able(cell, self._fields, field) else None
            return measure_unseen(cell, self._place(cell), self._unseen, known, executor, self._asked.seed)
        finally:
            executor.close()

    def _classify(self, one: Rival) -> None:
        """Fit a classifier and let it predict, if that is not done."""
        row = self._do_other(one.name, self._asked.iterations, lambda: self._classified(one))
        if row is not None:
            self._others.append(row)
            self._write_table()

    def _classified(self, one: Rival) -> dict[str, Any]:
        """Return the row of a classifier, or its ``error``."""
        began = time.perf_counter()
        found = self._supervised(one) if one.classifier == SUPERVISED else self._learn(one)
        if "error" in found:
            return found
        took = time.perf_counter() - began
        named = {"cell": one.name, "peer": one.label, "classifier": one.classifier, "topics": one.topics}
        return {**named, "start": one.start, "score": None, "seconds": took, "predict_seconds": None, **found}

    def _figures_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {"figures": {"macro F1": row["macro_f1"]}}

    def _learn(self, one: Rival) -> dict[str, Any]:
        """Fit a classifier of scikit-learn."""
        seed = self._asked.seed
        if one.classifier == TOPICS:
            theta = self._proportions(one)
            lesson, train, unseen = self._documents(one.labels, self._besides.covariates)
            features, asked = beside_topics(theta[0], train), beside_topics(theta[1], unseen)
        else:
            lesson, train, unseen = self._documents((), ())
            features, asked = train.words, unseen.words
        predicted, tuned = learned(one.classifier, features, asked, lesson, seed)
        return self._told(unseen, predicted, tuned)

    def _documents(self, labels: Sequence[str], covariates: Sequence[str]) -> tuple[Lesson, Known, Known]:
        """Read the documents; what is read without labels is kept for the next classifier."""
        plain = not labels and not covariates
        if plain and self._read is not None:
            return self._read
        field = self._besides.field or ""
        table = others_of(self._corpus, labels, covariates)
        train, unseen = (
            read_known(one, field, numeric=self._fields.numeric, table=table) for one in (self._corpus, self._unseen)
        )
        found = Lesson.of(train, self._asked.seed, self._corpus.url), train, unseen
        if plain:
            self._read = found
        return found

    def _told(self, unseen: Known, predicted: Sequence[str | float], tuned: dict[str, Any]) -> dict[str, Any]:
        tally = tallied(unseen, predicted)
        if not tally.documents:
            raise InputError(self._unseen.url, f"no document with a word has a value of '{self._besides.field}'")
        return {"tuned": tuned, **told_of(scored(self._besides.field or "", tally))}

    def _proportions(self, one: Rival) -> list[npt.NDArray[np.float64]]:
        """Fit LDA, if it is not fitted, and return the proportions of all documents, seen and unseen."""
        place, near = self._folder / RUNS / f"{one.classifier}-{one.topics}", self._reading
        options = {"family": TOPICS_OF, "topics": one.topics, "iterations": self._asked.iterations}

        def sink(event: dict[str, Any]) -> None:
            tell(self._sinks, {**event, "cell": one.name})

        self._fit_one(place, sink, {**options, "heldout": None, "seed": self._asked.seed})
        found = []
        for corpus in (self._corpus, self._unseen):
            with tempfile.TemporaryDirectory(prefix="collapsium-") as scratch:
                path = Path(scratch) / "proportions.parquet"
                infer(place.url, corpus.url, path, threshold=0.0, seed=self._asked.seed, **near.options())
                found.append(_dense(path, one.topics or 0))
        return found

    def _supervised(self, one: Rival) -> dict[str, Any]:
        """Let tomotopy's supervised LDA learn, in a process of its own."""
        if not installed("tomotopy"):
            return {"error": "tomotopy is not installed"}
        lesson, _, unseen = self._documents((), ())
        if len(lesson.classes) > MOST_RESPONSES:
            return {"error": f"{len(lesson.classes)} classes, and of more than {MOST_RESPONSES} it is not tried"}
        given = {
            "train": self._corpus.folder.address,
            "unseen": self._unseen.folder.address,
            "field": self._besides.field,
            "numeric": self._fields.numeric,
            "topics": one.topics,
            "iterations": self._asked.iterations,
            "seed": self._asked.seed,
            "workers": self._where["workers"] or os.cpu_count() or 1,
        }
        found = told_by("collapsium.pipeline.workflows.compare.baselines.supervised_lda", given, "predicted")
        return found if "error" in found else self._told(unseen, found["predicted"], found["tuned"])

    def _about(self) -> list[str]:
        train, unseen, asked = self._corpus.manifest, self._unseen.manifest, self._asked.record()
        what = (
            f"Corpus: {self._corpus.url}, {train.documents:,} documents, {train.tokens:,} tokens, "
            f"{train.vocabulary.words:,} words, in {len(train.shards)} shards; unseen: {self._unseen.url}, "
            f"{unseen.documents:,} documents, {unseen.tokens:,} tokens. Labels: "
            f"{', '.join(self._fields.taken) or 'none'}. Seed {self._asked.seed}."
        )
        said = [f"{name}: {shown(asked[key])}" for name, key in (("Options", "settings"), ("Varied", "vary"))]
        return [what, *(f"{one}." for one in said if not one.endswith(": none"))]

    def _write_table(self) -> None:
        write_rows(self._folder, TABLE, [{name: row[name] for name in ROW.names} for row in self._rows], ROW)
        write_rows(self._folder, CLASSES_FILE, class_rows([*self._rows, *self._others]), CLASSES)
        self._folder.write(TEXT, text_of(self._rows, self._others, self._left_out, self._about()).encode())


def _dense(path: Path, topics: int) -> npt.NDArray[np.float64]:
    """Read proportions as `infer` wrote them."""
    table = pq.read_table(path)
    ids, shares = (table[name].combine_chunks() for name in ("topics", "proportions"))
    theta = np.zeros((table.num_rows, topics))
    owner = np.repeat(np.arange(table.num_rows), np.diff(np.asarray(ids.offsets)))
    theta[owner, np.asarray(ids.values)] = np.asarray(shares.values)
    return theta
