"""The base class of all estimators: `fit`, `partial_fit`, `transform`, `score` and export to pyLDAvis."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from collapsium.pipeline.analysis.options import Measure, RankOptions
from collapsium.pipeline.analysis.words.ranking import word_scores
from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.engine.loop.scoring import mean_score
from collapsium.pipeline.engine.resources.placement import Placement
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.engine.setup.starts import FitInputs, StartSource
from collapsium.pipeline.estimators.common import FOLD_IN_DOCUMENTS, WHERE, DocumentEstimator
from collapsium.pipeline.estimators.fitted_model import Fitted, stepped
from collapsium.pipeline.estimators.in_memory_fit import fit_here
from collapsium.pipeline.executors.schedulers import is_elsewhere
from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.registry import make_options
from collapsium.pipeline.options import python_number
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.workers.arrays.ranking import largest

# Parameter names of the estimators, by the names of the same options elsewhere.
NAMES = {"topics": "n_components", "iterations": "max_iter", "tolerance": "tol"}


def _can_step(estimator: TopicEstimator) -> bool:
    if not estimator.STOCHASTIC:
        raise AttributeError(
            f"{type(estimator).__name__} has no partial_fit: the family '{estimator.FAMILY}' is not fitted by "
            "minibatches; use fit"
        )
    return True


class TopicEstimator(DocumentEstimator):
    """Base class of the estimators of all families; `DocumentEstimator` describes its subclasses."""

    # Fitting.

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Fit the topic model to documents."""
        with _named():
            options, limits = self._fit_options()
            make_options(self.FAMILY, options)
            seed = self._seed()
            # If this fit fails, an earlier model with other columns must not be used.
            for name in ("_fitted", "n_iter_"):
                self._forget(name)
            with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
                corpus = self._corpus_of(X, place)
                self._keep(*self._fit(corpus, place, seed, options, limits))
        self._base_seed = seed
        return self

    def _fit(
        self, corpus: Corpus, place: str, seed: int, options: dict[str, Any], limits: dict[str, Any]
    ) -> tuple[Fitted, int]:
        """Return a model of a corpus, and its iterations; a fit in this process without `run` writes no run."""
        where = {name: limits.pop(name) for name in WHERE if name in limits}
        here = self.scheduler in ("threads", "serial")
        where.update(scheduler=self.scheduler, memory=python_number(self.memory))
        workers = python_number(self.workers)
        where["workers"] = workers if workers is not None or is_elsewhere(self.scheduler) else self._threads()
        members = {"restarts": python_number(self.restarts), "combine": self.combine}
        start = {"start": self.start and os.fspath(self.start), "start_strength": python_number(self.start_strength)}
        alone = not (members["restarts"] or limits.get("samples") or self.combine != "predictions")
        if here and self.run is None and alone and tuple(start.values()) == (None, 0.0):
            bounds, config = Limits(**limits), make_options(self.FAMILY, options)
            inputs = FitInputs(self.FAMILY, config, corpus.manifest.documents, elsewhere=bounds.schedule != "batch")
            begun = StartSource.of_fit(None, 0.0, inputs)
            request = Request(corpus, None, self.FAMILY, config, bounds, seed, start=begun)
            return fit_here(request.with_growth(), Placement(**where))
        out = f"{place}/run" if self.run is None else self.run
        model = fit(
            corpus.folder.address,
            out,
            family=self.FAMILY,
            seed=seed,
            **members,
            **start,
            **where,
            **limits,
            **options,
        )
        return Fitted.of(model, corpus.manifest.documents, corpus.manifest.tokens), model.record.iterations

    @available_if(_can_step)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Update the model with a minibatch, in one step of the stochastic schedule.

        X is swept in batches of 32 documents. Batch t, counted over all calls, has step size (1 + t)^-0.9, as with
        ``collapsium fit --schedule stochastic`` (SCVB0; Foulds et al., 2013). An earlier `fit` counts as one pass over
        its documents.
        """
        with _named():
            options, _ = self._fit_options()
            config = make_options(self.FAMILY, options)
            before = getattr(self, "_fitted", None)
            if before is None:
                self._base_seed = self._seed()
            documents = Documents.join(list(self._chunks_of(X, FOLD_IN_DOCUMENTS, reset=before is None)))
            shard = Shard.of(0, documents)
            if not shard.tokens:
                if before is None:
                    raise InputError("X", "expected at least one document with a word")
                return self
            if before is None and getattr(config, "weights", None) is not None:
                # They are computed from all documents.
                raise OptionError("expected an estimator that was fitted, as `partial_fit` sees a minibatch", "weights")
            self._step(before, config, shard)
        return self

    def _step(self, before: Fitted | None, config: FamilyOptions, shard: Shard) -> None:
        total = int(self.total_documents)
        after = stepped(before, self.FAMILY, config, self._base_seed, shard, self.n_features_in_, total)
        self._keep(after, after.steps)

    # Results.

    @property
    def components_(self) -> npt.NDArray[np.float64]:
        """Pseudo-counts of words, b_w + E[n_kw], shape (topics, words); row k, divided by its sum, is phi_k."""
        if not hasattr(self, "_fitted"):
            raise AttributeError(f"{type(self).__name__} is not fitted: it has no components_")
        if not hasattr(self, "_components"):
            self._components = self._fitted.components(float(getattr(self, "beta", 1.0)))
        components: npt.NDArray[np.float64] = self._components
        return components

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the topic proportions of documents, seen or unseen, with the topics held fixed."""
        check_is_fitted(self, "n_iter_")
        parts = list(self._each(X, lambda number, _, documents: (self._fitted.proportions, (number, documents))))
        return np.concatenate(parts) if parts else np.zeros((0, self._n_features_out))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """Return the mean log probability of held-out tokens by document completion; higher is better.

        Proportions are fitted to a random half of each document's tokens with the topics held fixed. The score is the
        mean over the other half's tokens of log sum_k theta_dk phi_kw, in nats. The halves are the same for all
        models, and the same as for ``collapsium evaluate --unseen``. Unlike the score of scikit-learn's
        `LatentDirichletAllocation`, it is not a bound on the likelihood and does not grow with the number of documents.
        It is a held-out score only for documents that the model was not fitted to.
        """
        check_is_fitted(self, "n_iter_")
        fitted = self._fitted
        scores = list(self._each(X, lambda number, first, documents: (fitted.score, (number, first, documents))))
        score = mean_score(scores)
        if score is None:
            raise InputError("X", "no token is left to score")
        return score

    def perplexity(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """Return the perplexity of unseen documents, exp(-score); lower is better."""
        return math.exp(-self.score(X))

    def top_words(
        self, count: int = 10, *, rank_by: Measure = "probability", rank_weight: float | None = None
    ) -> list[list[str]]:
        """Return the first words of each topic by a measure."""
        check_is_fitted(self, "n_iter_")
        options = RankOptions(rank_by=rank_by, rank_weight=rank_weight)
        counts = self.components_
        phi, total = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0)
        exclusivity = phi / phi.sum(axis=0)
        top = largest(word_scores(phi, exclusivity, total / total.sum(), counts.sum(axis=1), options), count)
        names = self._names()
        return [[str(names[word]) for word in row] for row in top.tolist()]

    def to_pyldavis(self, X: Any, vocabulary: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the arguments of ``pyLDAvis.prepare(**...)``, which draws the topics.

        Documents and words without tokens are left out, because pyLDAvis takes logarithms of their frequencies.
        """
        check_is_fitted(self, "n_iter_")
        names = vocabulary if vocabulary is not None else self._names()
        if len(names) != self.n_features_in_:
            raise OptionError(f"vocabulary: expected {self.n_features_in_} words, found {len(names)}")
        lengths, tokens, shares = [np.zeros(0, np.int64)], np.zeros(self.n_features_in_, np.int64), []
        for documents, part in self._each(X, lambda number, _, some: (_shown, (self._fitted, number, some))):
            lengths.append(documents.tokens)
            np.add.at(tokens, documents.words, documents.counts)
            shares.append(part)
        length = np.concatenate(lengths)
        if not length.any():
            raise InputError("X", "expected at least one document with a word")
        phi = self.components_[:, tokens > 0]
        return {
            "topic_term_dists": phi / phi.sum(axis=1, keepdims=True),
            "doc_topic_dists": np.concatenate(shares)[length > 0],
            "doc_lengths": length[length > 0],
            "vocab": [str(names[word]) for word in np.flatnonzero(tokens).tolist()],
            "term_frequency": tokens[tokens > 0],
            "sort_topics": False,
            "start_index": 0,
        }


def _shown(fitted: Fitted, number: int, documents: Documents) -> tuple[Documents, npt.NDArray[np.float64]]:
    return documents, fitted.proportions(number, documents)


@contextmanager
def _named() -> Iterator[None]:
    """Rename options in errors to the parameters of the estimators."""
    try:
        yield
    except OptionError as error:
        raise OptionError(error.spelled(_here)) from None


def _here(name: str) -> str:
    return NAMES.get(name, name)
