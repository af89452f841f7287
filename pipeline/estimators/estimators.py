"""The estimators of the families."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from collapsium.pipeline.engine.setup.limits import ITERATIONS
from collapsium.pipeline.estimators.base import TopicEstimator


class CollapsedLDA(TopicEstimator):
    """Latent Dirichlet allocation by collapsed variational inference (family ``lda``).

    theta_d ~ Dir(alpha, ..., alpha), phi_k ~ Dir(beta/W, ..., beta/W), W being the number of words; CVB0 or the second
    order of Teh, Newman and Welling (2007). A fit with the same counts, parameters and `random_state` is the same to
    the last bit, whatever `n_jobs`, `workers` and `scheduler` are, and that of ``collapsium fit --seed``.

    Parameters
    ----------
    n_components : int, optional
        Number of topics K.
    alpha : float, optional
        Dirichlet parameter of each topic in a document.
    beta : float, optional
        Concentration of a topic over the words, of which each word has beta/W.
    learn : tuple of str, optional
        What is learned: ``alpha``, ``beta``, ``asymmetric-alpha``, ``asymmetric-beta``.
    order : {0, 2}, optional
        Zeroth-order updates (CVB0), or the second order.
    flatten : float, optional
        With order 0, power to which a token's weights are raised; less than 1 spreads it over more topics.
    max_iter : int, optional
        Sweeps over the documents.
    tol : float, optional
        End before, when the share of the tokens that a sweep moves falls under it; 0 for never.
    random_state : int, RandomState or None, optional
        The seed, or what one is drawn from.
    n_jobs : int, optional
        Threads; None for one, -1 for one a processor.
    total_documents : int, optional
        For `partial_fit`: documents of all minibatches together.
    fractional : {"error", "round"}, optional
        What to do about counts that are not whole: refuse them, or take the nearest whole number. The model is one of
        tokens: there are no halves of them.
    shard_tokens : int, optional
        Tokens of a shard, of which each thread sweeps one at a time; by default an eighth of all, between 100,000 and
        2,000,000. Another number gives another model, about as good. A corpus has its shards.
    scheduler : str, optional
        Where `fit` runs, as for `collapsium.pipeline.fit`. A cluster elsewhere must see the documents: give it a corpus
        on a store that it sees. `transform` and `score` run in threads of this process.
    workers : int, optional
        Workers of the scheduler, as for `collapsium.pipeline.fit`; by default `n_jobs`.
    memory : str or int, optional
        What each worker process may hold, as for `collapsium.pipeline.fit`.
    run : str or path-like, optional
        Folder to keep the run in, which must not exist yet; by default none is kept. A run holds its model; of its
        documents only those of a corpus stay, so that one of a matrix cannot be resumed.
    options : mapping, optional
        Further options of the family and of `collapsium.pipeline.fit`, by name.

    Attributes
    ----------
    components_ : numpy.ndarray of float64, shape (n_components, n_features)
        Pseudo-counts of words, b_w + E[n_kw]; divided by its sum, a row is phi_k. Made when it is first asked for.
    n_iter_ : int
        Iterations of `fit`, or calls of `partial_fit`.
    n_features_in_ : int
        Number of words.
    feature_names_in_ : numpy.ndarray of str, shape (n_features,)
        Names of the columns, where they are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import CollapsedLDA
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> lda = CollapsedLDA(n_components=2, beta=1.0, max_iter=20, random_state=0).fit(counts)
    >>> theta = lda.transform(counts)
    >>> theta.shape
    (4, 2)
    >>> bool(theta[0].argmax() == theta[1].argmax() != theta[2].argmax())
    True
    """

    FAMILY = "lda"
    OPTIONS = ("alpha", "beta", "learn", "order", "flatten")
    STOCHASTIC = True

    def __init__(
        self,
        n_components: int = 10,
        *,
        alpha: float = 0.1,
        beta: float = 100.0,
        learn: tuple[str, ...] = (),
        order: int = 0,
        flatten: float = 1.0,
        max_iter: int = ITERATIONS,
        tol: float = 0.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        total_documents: int = 1_000_000,
        fractional: str = "error",
        shard_tokens: int | None = None,
        scheduler: str = "threads",
        workers: int | None = None,
        memory: str | int | None = None,
        run: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._take(locals())


class CollapsedHDP(TopicEstimator):
    """The hierarchical Dirichlet process by collapsed variational inference (family ``hdp``).

    theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta/W, ..., beta/W), with sticks pi_k and Gamma priors on alpha and gamma
    (Teh, Kurihara and Welling, 2007), truncated at K topics. What a document expects of topics beyond is shared out
    over the K.

    Parameters
    ----------
    n_components : int, optional
        Truncation K: the most topics there can be.
    alpha_shape, alpha_rate, gamma_shape, gamma_rate : float, optional
        Gamma priors on alpha, the concentration of a document, and gamma, that of the sticks.
    beta : float, optional
        Concentration of a topic over the words, of which each word has beta/W.
    learn : tuple of str, optional
        What is learned: ``alpha``, ``gamma``, ``pi``, ``beta``, ``tau``.
    order : {0, 2}, optional
        Zeroth-order updates (CVB0), or the second order of the paper.
    flatten : float, optional
        As for `CollapsedLDA`.
    max_iter, tol, random_state, n_jobs, total_documents, fractional, shard_tokens, scheduler, workers, memory, run, \
options : optional
        As for `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        As of `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import CollapsedHDP
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> CollapsedHDP(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape
    (4, 5)
    """

    FAMILY = "hdp"
    OPTIONS = ("alpha_shape", "alpha_rate", "gamma_shape", "gamma_rate", "beta", "learn", "order", "flatten")
    STOCHASTIC = True

    def __init__(
        self,
        n_components: int = 100,
        *,
        alpha_shape: float = 4.0,
        alpha_rate: float = 4.0,
        gamma_shape: float = 7.0,
        gamma_rate: float = 7.0,
        beta: float = 100.0,
        learn: tuple[str, ...] = ("alpha", "gamma", "pi"),
        order: int = 0,
        flatten: float = 1.0,
        max_iter: int = ITERATIONS,
        tol: float = 0.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        total_documents: int = 1_000_000,
        fractional: str = "error",
        shard_tokens: int | None = None,
        scheduler: str = "threads",
        workers: int | None = None,
        memory: str | int | None = None,
        run: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._take(locals())


class VariationalLDA(TopicEstimator):
    """Latent Dirichlet allocation by variational Bayes (family ``vb-lda``), to compare with.

    Parameters
    ----------
    n_components : int, optional
        Number of topics K.
    alpha : float, optional
        Dirichlet parameter of each topic in a document.
    beta : float, optional
        Concentration of a topic over the words, of which each word has beta/W.
    learn : tuple of str, optional
        What is learned: ``alpha``, ``beta`` (one value for all), ``asymmetric-alpha``.
    max_iter, tol, random_state, n_jobs, total_documents, fractional, shard_tokens, scheduler, workers, memory, run, \
options : optional
        As for `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        As of `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import VariationalLDA
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> VariationalLDA(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape
    (4, 5)
    """

    FAMILY = "vb-lda"
    OPTIONS = ("alpha", "beta", "learn")

    def __init__(
        self,
        n_components: int = 10,
        *,
        alpha: float = 0.1,
        beta: float = 100.0,
        learn: tuple[str, ...] = (),
        max_iter: int = ITERATIONS,
        tol: float = 0.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        total_documents: int = 1_000_000,
        fractional: str = "error",
        shard_tokens: int | None = None,
        scheduler: str = "threads",
        workers: int | None = None,
        memory: str | int | None = None,
        run: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._take(locals())


class GibbsLDA(TopicEstimator):
    """Latent Dirichlet allocation by collapsed Gibbs sampling (family ``gibbs-lda``), to compare with.

    Parameters
    ----------
    n_components : int, optional
        Number of topics K.
    alpha : float, optional
        Dirichlet parameter of each topic in a document.
    beta : float, optional
        Concentration of a topic over the words, of which each word has beta/W.
    learn : tuple of str, optional
        What is learned: ``alpha`` (one value for all), ``asymmetric-alpha``, ``beta``.
    max_iter, tol, random_state, n_jobs, total_documents, fractional, shard_tokens, scheduler, workers, memory, run, \
options : optional
        As for `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        As of `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import GibbsLDA
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> GibbsLDA(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape
    (4, 5)
    """

    FAMILY = "gibbs-lda"
    OPTIONS = ("alpha", "beta", "learn")

    def __init__(
        self,
        n_components: int = 10,
        *,
        alpha: float = 0.1,
        beta: float = 100.0,
        learn: tuple[str, ...] = (),
        max_iter: int = ITERATIONS,
        tol: float = 0.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        total_documents: int = 1_000_000,
        fractional: str = "error",
        shard_tokens: int | None = None,
        scheduler: str = "threads",
        workers: int | None = None,
        memory: str | int | None = None,
        run: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._take(locals())


class GibbsHDP(TopicEstimator):
    """The hierarchical Dirichlet process by Gibbs sampling (family ``gibbs-hdp``), to compare with.

    Parameters
    ----------
    n_components : int, optional
        Topics to start with; there may be more or fewer in the end, and as many columns.
    alpha_shape, alpha_rate, gamma_shape, gamma_rate : float, optional
        Gamma priors on alpha, the concentration of a document, and gamma, that of the topics.
    beta : float, optional
        Concentration of a topic over the words, of which each word has beta/W.
    learn : tuple of str, optional
        What is learned: ``alpha``, ``gamma``.
    max_iter, tol, random_state, n_jobs, total_documents, fractional, shard_tokens, scheduler, workers, memory, run, \
options : optional
        As for `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        As of `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import GibbsHDP
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> GibbsHDP(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape[0]
    4
    """

    FAMILY = "gibbs-hdp"
    TOPICS = "start_topics"
    OPTIONS = ("alpha_shape", "alpha_rate", "gamma_shape", "gamma_rate", "beta", "learn")

    def __init__(
        self,
        n_components: int = 10,
        *,
        alpha_shape: float = 4.0,
        alpha_rate: float = 4.0,
        gamma_shape: float = 7.0,
        gamma_rate: float = 7.0,
        beta: float = 100.0,
        learn: tuple[str, ...] = ("alpha", "gamma"),
        max_iter: int = ITERATIONS,
        tol: float = 0.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        total_documents: int = 1_000_000,
        fractional: str = "error",
        shard_tokens: int | None = None,
        scheduler: str = "threads",
        workers: int | None = None,
        memory: str | int | None = None,
        run: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._take(locals())
