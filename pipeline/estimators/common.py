"""Parameters of the estimators, the words of the training documents, and the reading of documents in chunks."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state

from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES
from collapsium.pipeline.estimators.fitted_model import Call, Fitted, in_order
from collapsium.pipeline.estimators.inputs import as_corpus, document_chunks, validated, written
from collapsium.pipeline.executors.base import Executor, SerialExecutor, T
from collapsium.pipeline.executors.schedulers import as_scheduler, check_scheduler
from collapsium.pipeline.executors.threads import ThreadExecutor
from collapsium.pipeline.options import python_number, python_value
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.vocabulary import words_digest
from collapsium.storage.errors import MismatchError, OptionError

# Number of documents in a chunk. It is fixed, because the random numbers of a document may depend on it.
FOLD_IN_DOCUMENTS = 512

# Names of the options of `Placement` that ``options`` may contain
WHERE = ("scratch", "checkpoint_every", "cluster_timeout", "tls", "strict_bits")


class DocumentEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class with the parameters of an estimator and the reading of its documents.

    A subclass sets `FAMILY` and, in `OPTIONS`, the options of the family that are its own parameters. Its ``__init__``
    lists these and the parameters annotated here, because scikit-learn reads its signature, and calls `_take`.
    """

    FAMILY: ClassVar[str]
    OPTIONS: ClassVar[Sequence[str]] = ()
    # The option of the family that ``n_components`` sets.
    TOPICS: ClassVar[str] = "topics"
    # True if the family has a stochastic schedule, which `partial_fit` requires.
    STOCHASTIC: ClassVar[bool] = False

    n_components: int
    max_iter: int
    tol: float
    random_state: int | np.random.RandomState | None
    n_jobs: int | None
    restarts: int
    combine: str
    start: str | None
    start_strength: float
    total_documents: int
    fractional: str
    shard_tokens: int | None
    scheduler: object
    workers: int | None
    memory: str | int | None
    run: str | os.PathLike[str] | None
    options: Mapping[str, object] | None

    n_features_in_: int
    n_iter_: int
    _fitted: Fitted
    # The vocabulary of a training corpus; None for a matrix, which may have ``feature_names_in_``.
    _words: list[str] | None

    def _take(self, arguments: Mapping[str, object]) -> None:
        """Set the parameters to the arguments of ``__init__``; scikit-learn permits nothing else there."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, with the address of a Dask client or cluster, which cannot be pickled."""
        state: dict[str, Any] = super().__getstate__()
        return state if isinstance(self.scheduler, str) else {**state, "scheduler": str(as_scheduler(self.scheduler))}

    def __sklearn_clone__(self) -> Self:
        """Return an estimator of the same parameters, with the same Dask client or cluster, which cannot be copied."""
        scheduler = self.scheduler
        if isinstance(scheduler, str):
            return cast(Self, super().__sklearn_clone__())
        named = copy.copy(self)
        cloned = cast(Self, super(DocumentEstimator, named).__sklearn_clone__())
        cloned.scheduler = scheduler
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _fit_options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the family's options, and the other options of `fit`."""
        self._require_named_once()
        options = {**{name: getattr(self, name) for name in self.OPTIONS}, **(self.options or {})}
        options[self.TOPICS] = self.n_components
        options = {name: python_value(value) for name, value in options.items()}
        limits = {name: options.pop(name) for name in (*LIMIT_NAMES, *WHERE) if name in options}
        return options, {"iterations": self.max_iter, "tolerance": self.tol, **limits}

    def _require_named_once(self) -> None:
        """Refuse an entry of ``options`` that is a parameter too and was set there; the topics are always."""
        parameters = {name: name for name in self.OPTIONS}
        parameters |= {"iterations": "max_iter", "tolerance": "tol", self.TOPICS: "n_components"}
        defaults = inspect.signature(type(self)).parameters
        for name in self.options or {}:
            parameter = parameters.get(name)
            if parameter is None:
                continue
            value = getattr(self, parameter)
            if name == self.TOPICS or not np.array_equal(value, defaults[parameter].default):
                raise OptionError(
                    f"expected no {name!r}, which is the parameter `{parameter}` (found {value!r})", "options"
                )

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _threads(self) -> int:
        workers: int | None = python_number(self.workers)
        check_scheduler(self.scheduler, workers)
        if workers is not None and self.scheduler == "threads":
            return workers
        return int(effective_n_jobs(python_number(self.n_jobs)))

    def _corpus_of(self, X: Any, place: str) -> Corpus:
        """Return the training corpus, opened or written from a matrix, and store its words."""
        corpus = as_corpus(X)
        if corpus is not None:
            self._remember(corpus)
            return corpus
        X = validated(self, X, reset=True)
        self._words = None
        names = getattr(self, "feature_names_in_", None)
        words = [f"x{number}" for number in range(self.n_features_in_)] if names is None else list(names)
        return written(
            X, f"{place}/corpus", words, python_number(self.shard_tokens), self.fractional, type(self).__name__
        )

    def _remember(self, corpus: Corpus) -> None:
        """Store the words of a training corpus."""
        self._forget("feature_names_in_")
        self._words, self.n_features_in_ = corpus.vocabulary.words, corpus.manifest.vocabulary.words

    def _keep(self, fitted: Fitted, iterations: int) -> None:
        self._fitted, self.n_iter_ = fitted, iterations
        self._n_features_out = fitted.topics.size
        self._forget("_components")

    def _forget(self, name: str) -> None:
        if hasattr(self, name):
            delattr(self, name)

    def _chunks_of(self, X: Any, most: int, *, reset: bool = False) -> Iterator[Documents]:
        """Yield the documents of a matrix in chunks of `most`, or those of a corpus by shards."""
        corpus = as_corpus(X)
        if corpus is None:
            if reset:
                self._words = None
            yield from document_chunks(validated(self, X, reset=reset), most, self.fractional, type(self).__name__)
            return
        if reset:
            self._remember(corpus)
        words = self._words if self._words is not None else getattr(self, "feature_names_in_", None)
        if words is not None:
            corpus.require_vocabulary_of(words_digest(list(words)), f"this {type(self).__name__}")
        elif corpus.manifest.vocabulary.words != self.n_features_in_:
            raise MismatchError(
                f"{corpus.url}: it has {corpus.manifest.vocabulary.words} words, but this {type(self).__name__} was "
                f"fitted to {self.n_features_in_}"
            )
        for reference in corpus.references:
            yield reference.documents()

    def _each(self, X: Any, task: Callable[[int, int, Documents], Call[T]]) -> Iterator[T]:
        """Yield the result of a task for each chunk, given the numbers of the chunk and of its first document."""

        def submitted() -> Iterator[Call[T]]:
            first = 0
            for number, documents in enumerate(self._chunks_of(X, FOLD_IN_DOCUMENTS)):
                yield task(number, first, documents)
                first += len(documents)

        threads = self._threads()
        executor: Executor = SerialExecutor() if threads == 1 else ThreadExecutor(threads)
        try:
            yield from in_order(executor, submitted())
        finally:
            executor.close()

    def _names(self) -> Sequence[str]:
        if self._words is not None:
            return self._words
        names = getattr(self, "feature_names_in_", None)
        return [f"x{number}" for number in range(self.n_features_in_)] if names is None else list(names)
