"""Shared code of the estimators of all families: from documents to a run, proportions and scores."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.engine.loop.scoring import mean_score
from collapsium.pipeline.engine.resources.placement import Placement
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.estimators.common import FOLD_IN_DOCUMENTS, WHERE, DocumentEstimator
from collapsium.pipeline.estimators.fitted_model import Fitted, stepped
from collapsium.pipeline.estimators.in_memory_fit import fit_here
from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.registry import make_options
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.errors import InputError, OptionError

NAMES = {"topics": "n_components", "iterations": "max_iter", "tolerance": "tol"}  # here, by their names elsewhere


def _can_step(estimator: TopicEstimator) -> bool:
    if not estimator.STOCHASTIC:
        raise AttributeError(
            f"{type(estimator).__name__} has no partial_fit: the family '{estimator.FAMILY}' is not fitted by "
            "minibatches; use fit"
        )
    return True


class TopicEstimator(DocumentEstimator):
    """Base of the families' estimators; a subclass is made as `DocumentEstimator` says."""

    # Fitting.

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Fit topics to documents.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array, Corpus or path of one; shape (documents, words)
            Counts of words. Feature j is word j, also where it has no tokens. Dask arrays are read by rows of blocks.
        y : None
            Not used.

        Returns
        -------
        self : estimator
            Fitted.

        Raises
        ------
        ValueError
            A count is negative or not whole, no document has a word, or a parameter is out of range.
        CollapsiumError
            As for `collapsium.pipeline.fit`.
        """
        with _named():
            options, limits = self._fit_options()
            make_options(self.FAMILY, options)
            seed = self._seed()
            for name in ("_fitted", "n_iter_"):  # after a fit that fails, what was fitted to other columns is not used
                self._forget(name)
            with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
                corpus = self._corpus_of(X, place)
                self._keep(*self._fit(corpus, place, seed, options, limits))
        self._base_seed = seed
        return self

    def _fit(
        self, corpus: Corpus, place: str, seed: int, options: dict[str, Any], limits: dict[str, Any]
    ) -> tuple[Fitted, int]:
        """Fit to a corpus; where no run is to be kept, and no other process works on it, without one."""
        where = {name: limits.pop(name) for name in WHERE if name in limits}
        here = self.scheduler in ("threads", "serial")
        where.update(scheduler=self.scheduler, memory=self.memory)
        where["workers"] = self.workers if self.workers is not None or "://" in self.scheduler else self._threads()
        if here and self.run is None:
            bounds = Limits(**limits)
            request = Request(corpus, None, self.FAMILY, make_options(self.FAMILY, options), bounds, seed)
            return fit_here(request, Placement(**where))
        out = f"{place}/run" if self.run is None else self.run
        model = fit(corpus.folder.address, out, family=self.FAMILY, seed=seed, **where, **limits, **options)
        return Fitted.of(model, corpus.manifest.documents, corpus.manifest.tokens), model.record.iterations

    @available_if(_can_step)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Make one step of the stochastic schedule, on all documents of X together.

        Steps decay as those of ``collapsium fit --schedule stochastic`` do: X is swept in batches of 32 documents, of
        which batch t of all calls goes (1 + t)^-0.9 of the way (SCVB0; Foulds et al., 2013). What was fitted before by
        `fit` counts for one pass over its documents.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array, Corpus or path of one; shape (documents, words)
            A minibatch: hundreds of documents or more, above all in the first call, which the topics begin from.
        y : None
            Not used.

        Returns
        -------
        self : estimator
            Fitted.

        Raises
        ------
        ValueError
            As for `fit`; or the options are not those of order 0, or learn what concerns words.
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
            self._step(before, config, shard)
        return self

    def _step(self, before: Fitted | None, config: FamilyOptions, shard: Shard) -> None:
        total = int(self.total_documents)
        after = stepped(before, self.FAMILY, config, self._base_seed, shard, self.n_features_in_, total)
        self._keep(after, after.steps)

    # What comes of it.

    @property
    def components_(self) -> npt.NDArray[np.float64]:
        """Pseudo-counts of words, shape (topics, words): b_w + E[n_kw]; divided by its sum, a row is phi_k."""
        if not hasattr(self, "_fitted"):
            raise AttributeError(f"{type(self).__name__} is not fitted: it has no components_")
        if not hasattr(self, "_components"):
            self._components = self._fitted.components(float(getattr(self, "beta", 1.0)))
        components: npt.NDArray[np.float64] = self._components
        return components

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """Fit the proportions of documents, seen or unseen, with the topics held fixed.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array, Corpus or path of one; shape (documents, words)
            Counts of words.

        Returns
        -------
        numpy.ndarray, shape (documents, topics)
            Rows sum to one. A document without words has the prior's.
        """
        check_is_fitted(self, "n_iter_")
        parts = list(self._each(X, lambda number, _, documents: (self._fitted.proportions, number, documents)))
        return np.concatenate(parts) if parts else np.zeros((0, self._n_features_out))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """Score unseen documents by completing them; higher is better.

        Proportions are fitted on a random half of each document's tokens with the topics held fixed; the score is the
        mean over the other half's tokens of log sum_k theta_dk phi_kw, in nats. The halves are the same for all
        models, and those of ``collapsium evaluate --unseen``. It is no bound on the likelihood, which scikit-learn's
        own LDA scores by, and does not grow with the number of documents. Documents that were fitted are scored
        too, but theirs are no held-out scores.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array, Corpus or path of one; shape (documents, words)
            Counts of words.
        y : None
            Not used.

        Returns
        -------
        float
            Nats a token.
        """
        check_is_fitted(self, "n_iter_")
        fitted = self._fitted
        scores = list(self._each(X, lambda number, first, documents: (fitted.score, number, first, documents)))
        score = mean_score(scores)
        if score is None:
            raise InputError("X", "no token is left to score")
        return score

    def perplexity(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """Return the perplexity of unseen documents, exp(-score); lower is better.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array, Corpus or path of one; shape (documents, words)
            Counts of words.
        y : None
            Not used.

        Returns
        -------
        float
            1 or more.
        """
        return math.exp(-self.score(X))

    def to_pyldavis(self, X: Any, vocabulary: Sequence[str] | None = None) -> dict[str, Any]:
        """Return what ``pyLDAvis.prepare(**...)`` takes to draw the topics.

        Documents and words without tokens are left out: they have no share of anything, and pyLDAvis takes logarithms.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array, Corpus or path of one; shape (documents, words)
            The documents to show, as a rule those that were fitted.
        vocabulary : sequence of str, optional
            The words, such as ``vectorizer.get_feature_names_out()``; by default the names of the columns.

        Returns
        -------
        dict
            ``topic_term_dists`` and ``doc_topic_dists``, whose rows sum to one, ``doc_lengths``, ``vocab`` and
            ``term_frequency``.
        """
        check_is_fitted(self, "n_iter_")
        names = vocabulary if vocabulary is not None else self._names()
        if len(names) != self.n_features_in_:
            raise OptionError(f"vocabulary: expected {self.n_features_in_} words, found {len(names)}")
        lengths, tokens, shares = [np.zeros(0, np.int64)], np.zeros(self.n_features_in_, np.int64), []
        for documents, part in self._each(X, lambda number, _, some: (_shown, self._fitted, number, some)):
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
        }


def _shown(fitted: Fitted, number: int, documents: Documents) -> tuple[Documents, npt.NDArray[np.float64]]:
    return documents, fitted.proportions(number, documents)


@contextmanager
def _named() -> Iterator[None]:
    """Name parameters in errors as they are named here, not as the commands' flags."""
    try:
        yield
    except OptionError as error:
        raise OptionError(error.spelled(_here)) from None


def _here(name: str) -> str:
    return NAMES.get(name, name)
