"""The estimators, one class for each family."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from collapsium.pipeline.estimators.base import TopicEstimator


class CollapsedLDA(TopicEstimator):
    """Latent Dirichlet allocation by collapsed variational inference (family ``lda``).

    theta_d ~ Dir(alpha, ..., alpha), phi_k ~ Dir(beta/W, ..., beta/W), where W is the number of words. Updates are CVB0
    or the second order of Teh, Newman and Welling (2007). The same counts, parameters and `random_state` give the same
    bits for any `n_jobs`, `workers` and `scheduler`, and the same as ``collapsium fit --seed``.

    Parameters
    ----------
    n_components : int, optional
        Number of topics K.
    alpha : float, optional
        Dirichlet parameter of each topic in a document's proportions; by default 1/K, at most 0.1, with order 0, and
        0.1 with order 2 and in `partial_fit`.
    beta : float, optional
        Concentration of a topic over the words; each of the W words has Dirichlet parameter beta/W.
    learn : tuple of str, optional
        Hyperparameters to learn: ``alpha``, ``beta``, ``asymmetric-alpha``, ``asymmetric-beta``.
    order : {0, 2}, optional
        Order of the updates: 0 for CVB0, or 2.
    inverse_temperature : float, optional
        Power of a token's responsibilities, with order 0; a value below 1 spreads the token over more topics. By
        default a fit searches for the value that predicts held-out tokens best.
    weights : {"idf", "log-tf-idf", "entropy"}, name of a file, or mapping, optional
        Weights of words, by which tokens count: computed, or by word. By default each token counts as one.
    prevalence : str, optional
        Formula of fields that the documents' priors follow, such as ``~ party + bs(year, df=5)``. The fields are
        columns of `metadata`, a frame beside X in `fit`, `transform`, `fit_transform` and `score` (in pipelines by
        metadata routing), or of a corpus or an AnnData object itself.
    max_iter : int, optional
        Maximum number of sweeps over the documents.
    tol : float, optional
        Stop early once a sweep moves less than this share of the tokens; 0 disables early stopping.
    random_state : int, RandomState or None, optional
        Seed, or a generator to draw it from; None draws it from `numpy.random`.
    n_jobs : int, optional
        Number of threads; None means 1, and -1 means one thread per processor.
    restarts : int, optional
        Number of seeds that are fitted; 0 fits one. `transform` gives the means of their proportions, `components_` the
        mean pseudo-counts of matching topics, and `score` scores their mean prediction.
    combine : {"predictions", "consensus"}, optional
        With ``"consensus"``, one more fit begins from the means of the matched models, and is the model.
    preset : {"defaults", "clusters", "short-texts"}, optional
        Options under one name, where parameters have their defaults; see `collapsium.pipeline.fit`.
    init, init_strength : str and float, optional
        Initial proportions of the documents, and the weight, in tokens, that they keep in each document's prior; see
        `collapsium.pipeline.fit`.
    total_documents : int, optional
        Total number of documents. Only used in `partial_fit`.
    fractional : {"error", "round"}, optional
        Treatment of counts that are not whole, such as tf-idf weights: raise an error, or round to the nearest whole
        number. The model describes tokens, which cannot be divided.
    layer : str, optional
        Layer of an AnnData object that holds the counts; by default its X. Cells are documents, genes or peaks words.
    binarise : bool, optional
        Count each word of a document once. Only used with AnnData.
    shard_tokens : int, optional
        Tokens of a shard; each thread sweeps one shard at a time. By default an eighth of all tokens, between 100,000
        and 2,000,000. Other sizes give other models of similar quality. A corpus keeps its shards.
    scheduler : str, path-like, distributed.Client or cluster object, optional
        Executor of `fit`: by default the active Dask client, or else threads; see `collapsium.pipeline.fit`. Workers
        on other machines need a corpus on storage that they can read. Other methods run in threads of this process, but
        rows of Dask collections stay on its workers.
    workers : int, optional
        Number of workers of the scheduler; by default `n_jobs`.
    memory : str or int, optional
        Memory limit of each worker process; see `collapsium.pipeline.fit`.
    run : str or path-like, optional
        Folder in which the run is saved, which must not exist yet; by default no run is saved. A matrix is not saved
        with the run, so only a run fitted to a corpus can be resumed.
    verbose : bool or int, optional
        Whether progress is shown, in one line that is updated; by default it is in terminals and notebooks.
    options : mapping, optional
        Further options of the family and of `collapsium.pipeline.fit`, by name.

    Attributes
    ----------
    components_ : numpy.ndarray of float64, shape (n_components, n_features)
        Pseudo-counts of words, b_w + E[n_kw]; row k, divided by its sum, is phi_k. Computed on first access.
    n_iter_ : int
        Iterations of `fit`, or calls of `partial_fit`.
    n_features_in_ : int
        Number of words.
    feature_names_in_ : numpy.ndarray of str, shape (n_features,)
        Names of the columns. Defined only when X has column names that are all strings.

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

    FAMILY: ClassVar[str] = "lda"
    STOCHASTIC: ClassVar[bool] = True

    alpha: float | None = None
    beta: float = 100.0
    learn: tuple[str, ...] = ()
    order: int = 0
    inverse_temperature: float | None = None
    weights: str | Mapping[str, float] | None = None
    prevalence: str | None = None


class CollapsedHDP(TopicEstimator):
    """The hierarchical Dirichlet process by collapsed variational inference (family ``hdp``).

    theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta/W, ..., beta/W), with sticks pi_k and Gamma priors on alpha and gamma
    (Teh, Kurihara and Welling, 2007), truncated at K topics. `transform` divides the proportion of topics beyond the
    truncation among the K topics.

    Parameters
    ----------
    n_components : int, optional
        Truncation K, the maximum number of topics.
    alpha_shape, alpha_rate, gamma_shape, gamma_rate : float, optional
        Gamma priors on alpha, the concentration of a document's proportions, and gamma, the sticks' concentration.
    beta : float, optional
        Concentration of a topic over the words; each of the W words has Dirichlet parameter beta/W.
    learn : tuple of str, optional
        Hyperparameters to learn: ``alpha``, ``gamma``, ``pi``, ``beta``, ``tau``; by default gamma and pi,
        and with order 2 also alpha.
    order : {0, 2}, optional
        Order of the updates: 0 for CVB0, or 2 as in the paper.
    inverse_temperature : float, optional
        See `CollapsedLDA`.
    weights : str or mapping, optional
        See `CollapsedLDA`.
    prevalence : str, optional
        See `CollapsedLDA`.
    max_iter, tol, random_state, n_jobs, restarts, combine, preset, init, init_strength, total_documents, fractional, \
layer, binarise, shard_tokens, scheduler, workers, memory, run, verbose, options : optional
        See `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        See `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import CollapsedHDP
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> CollapsedHDP(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape
    (4, 5)
    """

    FAMILY: ClassVar[str] = "hdp"
    STOCHASTIC: ClassVar[bool] = True

    n_components: int = dataclasses.field(default=100, kw_only=False)
    alpha_shape: float = 4.0
    alpha_rate: float = 4.0
    gamma_shape: float = 7.0
    gamma_rate: float = 7.0
    beta: float = 100.0
    learn: tuple[str, ...] | None = None
    order: int = 0
    inverse_temperature: float | None = None
    weights: str | Mapping[str, float] | None = None
    prevalence: str | None = None


class VariationalLDA(TopicEstimator):
    """Latent Dirichlet allocation by variational Bayes (family ``vb-lda``), a baseline.

    Parameters
    ----------
    n_components : int, optional
        Number of topics K.
    alpha : float, optional
        Dirichlet parameter of each topic in a document's proportions.
    beta : float, optional
        Concentration of a topic over the words; each of the W words has Dirichlet parameter beta/W.
    learn : tuple of str, optional
        Hyperparameters to learn: ``alpha``, ``beta`` (one value for all), ``asymmetric-alpha``.
    weights : str or mapping, optional
        See `CollapsedLDA`.
    max_iter, tol, random_state, n_jobs, restarts, combine, preset, init, init_strength, total_documents, fractional, \
layer, binarise, shard_tokens, scheduler, workers, memory, run, verbose, options : optional
        See `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        See `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import VariationalLDA
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> VariationalLDA(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape
    (4, 5)
    """

    FAMILY: ClassVar[str] = "vb-lda"

    alpha: float = 0.1
    beta: float = 100.0
    learn: tuple[str, ...] = ()
    weights: str | Mapping[str, float] | None = None


class GibbsLDA(TopicEstimator):
    """Latent Dirichlet allocation by collapsed Gibbs sampling (family ``gibbs-lda``), a baseline.

    Parameters
    ----------
    n_components : int, optional
        Number of topics K.
    alpha : float, optional
        Dirichlet parameter of each topic in a document's proportions.
    beta : float, optional
        Concentration of a topic over the words; each of the W words has Dirichlet parameter beta/W.
    learn : tuple of str, optional
        Hyperparameters to learn: ``alpha`` (one value for all), ``asymmetric-alpha``, ``beta``.
    max_iter, tol, random_state, n_jobs, restarts, combine, preset, init, init_strength, total_documents, fractional, \
layer, binarise, shard_tokens, scheduler, workers, memory, run, verbose, options : optional
        See `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        See `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import GibbsLDA
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> GibbsLDA(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape
    (4, 5)
    """

    FAMILY: ClassVar[str] = "gibbs-lda"

    alpha: float = 0.1
    beta: float = 100.0
    learn: tuple[str, ...] = ()


class GibbsHDP(TopicEstimator):
    """The hierarchical Dirichlet process by Gibbs sampling (family ``gibbs-hdp``), a baseline.

    Parameters
    ----------
    n_components : int, optional
        Initial number of topics. Sampling adds and removes topics; the arrays have a row or column for each final one.
    alpha_shape, alpha_rate, gamma_shape, gamma_rate : float, optional
        Gamma priors on alpha, the concentration of a document's proportions, and gamma, the topics' concentration.
    beta : float, optional
        Concentration of a topic over the words; each of the W words has Dirichlet parameter beta/W.
    learn : tuple of str, optional
        Hyperparameters to learn: ``alpha``, ``gamma``.
    max_iter, tol, random_state, n_jobs, restarts, combine, preset, init, init_strength, total_documents, fractional, \
layer, binarise, shard_tokens, scheduler, workers, memory, run, verbose, options : optional
        See `CollapsedLDA`.

    Attributes
    ----------
    components_, n_iter_, n_features_in_, feature_names_in_
        See `CollapsedLDA`.

    Examples
    --------
    >>> import numpy as np
    >>> from collapsium.pipeline.estimators import GibbsHDP
    >>> counts = np.array([[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]])
    >>> GibbsHDP(n_components=5, max_iter=5, random_state=0).fit_transform(counts).shape[0]
    4
    """

    FAMILY: ClassVar[str] = "gibbs-hdp"
    TOPICS: ClassVar[str] = "init_topics"

    alpha_shape: float = 4.0
    alpha_rate: float = 4.0
    gamma_shape: float = 7.0
    gamma_rate: float = 7.0
    beta: float = 100.0
    learn: tuple[str, ...] = ("alpha", "gamma")
