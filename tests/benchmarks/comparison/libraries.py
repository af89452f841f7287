"""Other libraries, fitted to a corpus as their users would, with their topic proportions and topics.

`python -m tests.benchmarks.comparison.libraries JSON` fits one and prints a line of JSON. All are
scored by the same definition: the mean over held-out tokens of log sum_k theta_dk phi_kw, in nats, with theta = (n_dk +
alpha) / (n_d + K alpha) and phi = (n_kw + beta/W) / (n_k + beta), or the library's own estimates if it has some. Words
that it does not know have the prior's probability.

Hierarchical Dirichlet processes of other libraries, which determine the number of topics; see `libraries`.

Counts that a library does not smooth are smoothed by the model's predictive distribution: theta = (n_dk + alpha pi_k) /
(n_d + alpha). pi_k is the share of topic k among all tables, approximated by one table for each topic of a document.
The remaining mass, from gamma, belongs to new topics, whose words have the prior's probability.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from collapsium.pipeline.engine.setup.limits import KINDS, Limits
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.workflows.compare_options import RANDOM, number_of
from collapsium.storage.corpus import corpus as corpora
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError, suggestion
from tests.benchmarks.comparison.base import BaselineError, Data, Floats, print_result, run_module
from tests.benchmarks.comparison.tables import Column, iterations_text, label_of, number_column, table_lines

if TYPE_CHECKING:
    from scipy import sparse


@dataclass(frozen=True)
class Library:
    """Another library's model."""

    name: str  # The name in ``--peers``
    module: str  # Name of the module to import
    samples: bool = False  # Whether its states are samples, whose predictions can be averaged
    finds_topics: bool = False  # Whether it determines the number of topics
    starts_from_topics: bool = False  # Whether it also starts from a number of topics
    options: Mapping[str, int | str] = field(default_factory=dict)  # Options of this library alone, with their defaults


_LIBRARIES = (
    Library("scikit-learn", "sklearn"),
    Library("gensim", "gensim"),
    Library("tomotopy", "tomotopy", samples=True, options={"optim_interval": 0}),
    Library("topica", "topica", options={"sampler": "cvb0"}),
    Library("pyrmallet", "pyrmallet", options={"optimize_interval": 10}),
    Library("tomotopy-hdp", "tomotopy", samples=True, finds_topics=True, starts_from_topics=True),
    Library("topica-hdp", "topica", finds_topics=True),
    Library("gensim-hdp", "gensim", finds_topics=True),
)
LIBRARIES = {library.name: library for library in _LIBRARIES}


def installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    return importlib.util.find_spec(module) is not None


ALPHA = GAMMA = 1.0  # Default concentrations, the means of the priors of Collapsium's families


def _texts(data: Data) -> tuple[list[int], list[list[str]]]:
    """Return the documents with tokens, and their tokens as numbers of words in text."""
    known = [d for d in data.documents() if data.offsets[d + 1] > data.offsets[d]]
    return known, [[str(word) for word in data.tokens(d)] for d in known]


def with_new(counts: Floats, alpha: float, gamma: float, phi: Floats) -> tuple[Floats, Floats]:
    """Return smoothed proportions, and topics with a last one for all new topics."""
    tables = np.append((counts > 0).sum(axis=0), gamma)
    wide = np.pad(counts, ((0, 0), (0, 1)))
    theta = (wide + alpha * tables / tables.sum()) / (counts.sum(axis=1, keepdims=True) + alpha)
    return theta, np.vstack([phi, np.full((1, phi.shape[1]), 1.0 / phi.shape[1])])


class TomotopyHDP:
    """Gibbs sampling with tables and sampled concentrations; the state is a sample."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        import tomotopy

        self.arguments, self.size, self.count = arguments, data.size, data.offsets.size - 1
        self.known, texts = _texts(data)
        # The library requires at least two topics.
        start = max(arguments.topics, 2)
        self.model = tomotopy.HDPModel(
            initial_k=start, alpha=arguments.alpha, gamma=GAMMA, eta=arguments.beta / data.size, seed=arguments.seed
        )
        for text in texts:
            self.model.add_doc(text)

    def step(self, iterations: int) -> None:
        """Run some more sweeps."""
        self.model.train(iterations, workers=self.arguments.workers)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return estimates from the last sample."""
        eta, model = self.arguments.beta / self.size, self.model
        live = [k for k in range(model.k) if model.is_live_topic(k)]
        words = np.array([int(word) for word in model.used_vocabs])
        total = np.array(model.get_count_by_topics(), dtype=np.float64)[live]
        probability = np.stack([model.get_topic_word_dist(k) for k in live])
        # The library smooths over the words of the training corpus: recover counts, and smooth over the vocabulary.
        phi = np.full((len(live), self.size), eta)
        phi[:, words] += np.maximum(probability * (total + eta * words.size)[:, np.newaxis] - eta, 0.0)
        counts = np.zeros((self.count, len(live)))
        for d, document in zip(self.known, model.docs, strict=True):
            counts[d] = np.bincount(document.topics, minlength=model.k)[live]
        return with_new(counts, model.alpha, model.gamma, phi / (total + self.arguments.beta)[:, np.newaxis])


class TopicaHDP:
    """Gibbs sampling of the library's Rust core; it starts from one topic, and a fit cannot be continued."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        self.arguments, self.size, self.count, self.done = arguments, data.size, data.offsets.size - 1, 0
        self.known, self.texts = _texts(data)
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more iterations."""
        import topica

        self.done += iterations
        eta = self.arguments.beta / self.size
        self.model = topica.HDP(alpha=self.arguments.alpha, gamma=GAMMA, beta=eta, seed=self.arguments.seed)
        self.model.fit(self.texts, iters=self.done, keep_theta_draws=False)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the library's own estimates."""
        theta = np.full((self.count, self.model.num_topics), 1.0 / self.model.num_topics)
        theta[self.known] = self.model.doc_topic
        return theta, _spread(self.model.topic_word, self.model.vocabulary, self.size)


class GensimHDP:
    """Online variational Bayes with a truncation of 150 topics; an iteration is a pass."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        self.arguments, self.size = arguments, data.size
        self.model: Any = None
        ends = zip(data.offsets[:-1], data.offsets[1:], strict=True)
        self.bags = [list(zip(data.words[a:b].tolist(), data.counts[a:b].tolist(), strict=True)) for a, b in ends]

    def step(self, iterations: int) -> None:
        """Run some more passes."""
        from gensim.models import HdpModel

        names = {word: str(word) for word in range(self.size)}
        if self.model is None:
            priors = {"alpha": self.arguments.alpha, "gamma": GAMMA, "eta": self.arguments.beta / self.size}
            self.model = HdpModel(self.bags, names, random_state=self.arguments.seed, **priors)
            iterations -= 1
        for _ in range(iterations):
            self.model.update(self.bags)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return posterior means."""
        gamma = self.model.inference(self.bags)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


def _spread(topics: Floats, words: Sequence[str], size: int) -> Floats:
    """Return topics over the complete vocabulary; words unknown to the library have its smallest probability."""
    phi = np.full((topics.shape[0], size), float(np.min(topics)))
    phi[:, [int(word) for word in words]] = topics
    normalised: Floats = phi / phi.sum(axis=1, keepdims=True)
    return normalised


HDPS: dict[str, type[TomotopyHDP | TopicaHDP | GensimHDP]] = {
    "tomotopy-hdp": TomotopyHDP,
    "topica-hdp": TopicaHDP,
    "gensim-hdp": GensimHDP,
}


OPTIONS: dict[str, type] = {"iterations": int, "alpha": float, "beta": float}
SAMPLING: dict[str, type] = {"samples": int, "sample_every": int}  # Further options of libraries that sample
PRIORS = {"alpha": 0.1, "beta": 100.0}  # Default priors, the same as in Collapsium's families
WORDS, SHOWN_TOPICS = 10, 10
NOTES = """\
Score: document completion, the mean over the held-out tokens of log sum_k theta_dk phi_kw, in nats, the same for all;
perplexity is exp(-score). Samplers with several samples are scored on the mean of their predictions. Seconds: for
Collapsium the work of a fit (see table.md), mean over the restarts; for other libraries the time of one fit. Iterations
of different methods are not comparable. Restarts averaged: the mean of all predictions, and the work of all restarts.
Topics (99%): number of the largest topics that hold 99% of the tokens. Other libraries have a_k = 0.1 (HDPs: alpha =
gamma = 1) and b_w = 100/W, unless options set other values; libraries that determine the number of topics are in every
table.
"""


@dataclass(frozen=True)
class LibraryFit:
    """One fit of another library."""

    name: str  # Name of its record
    library: Library  # The library
    topics: int | None  # Number of topics K; None if the library determines it
    start_topics: int  # Number of topics to start from
    options: JsonObject  # ``iterations``, ``samples``, ``sample_every``, ``alpha``, ``beta`` and the library's own

    def measure(self, train: str, heldout: str, seed: int, workers: int | None) -> JsonObject:
        """Fit the library's model in a separate process, and score it on the held-out tokens."""
        if not installed(self.library.module):
            raise BaselineError(f"{self.library.module} is not installed")
        arguments = {
            **self.options,
            "peer": self.library.name,
            "train": train,
            "heldout": heldout,
            "seed": seed,
            "topics": self.start_topics,
            "workers": workers or os.cpu_count() or 1,
            "words": WORDS,
        }
        result = run_module("tests.benchmarks.comparison.libraries", arguments, "score")
        start = f"from {self.start_topics} topic{'s' * (self.start_topics > 1)}"
        return {
            "cell": self.name,
            "baseline": self.library.name,
            "topics": self.topics,
            "start": start if self.library.starts_from_topics else RANDOM,
            "iterations": self.options["iterations"],
            **result,
            "perplexity": math.exp(-result["score"]),
        }


def library_fits(names: Sequence[str], record: JsonObject, settings: Mapping[str, JsonObject]) -> list[LibraryFit]:
    """Return the fits of libraries, one for each number of topics of a comparison, or number to start from."""
    for name in (*names, *settings):
        if name not in LIBRARIES:
            raise OptionError(f"unknown library '{name}'{suggestion(name, LIBRARIES)}", "peers")
    fits: list[LibraryFit] = []
    for library in (LIBRARIES[name] for name in names):
        spans: list[tuple[str, int | None, int]] = [(library.name, None, 1)]
        if not library.finds_topics:
            spans = [(f"{library.name}-{count}", count, count) for count in record["topics"]]
        elif library.starts_from_topics:
            spans = [(f"{library.name}-from-{count}", None, count) for count in record["start_topics"]]
        for name, count, start in spans:
            checked = _checked_options(record, library, settings.get(library.name, {}), count)
            fits.append(LibraryFit(name, library, count, start, checked))
    return fits


def _checked_options(record: JsonObject, library: Library, settings: JsonObject, topics: int | None) -> JsonObject:
    """Return the options of a fit: priors, the comparison's options, and the library's."""
    library_types = {name: type(default) for name, default in library.options.items()}
    known = {**OPTIONS, **(SAMPLING if library.samples else {}), **library_types}
    checked: JsonObject = {
        **PRIORS,
        "iterations": record["iterations"],
        "samples": 0,
        "sample_every": 0,
        **library.options,
    }
    if library.finds_topics:
        checked["alpha"] = ALPHA
    if library.samples:
        checked.update(samples=record["samples"], sample_every=record["sample_every"])
    for option, value in settings.items():
        named, kind = f"{library.name}.{option}", known.get(option)
        if kind is None:
            raise OptionError(f"{named}: unknown option of '{library.name}'{suggestion(option, known)}", "peer_set")
        number = value if kind is str else number_of(value, topics, named)
        kinds = {int: (int,), float: (int, float), str: (str,)}[kind]
        is_too_small = kind is float and isinstance(number, int | float) and not number > 0
        if not isinstance(number, kinds) or isinstance(number, bool) or is_too_small:
            raise OptionError(f"{named}: expected {KINDS[kind]}, found {value!r}", "peer_set")
        checked[option] = number
    Limits(**{name: checked[name] for name in ("iterations", "samples", "sample_every")}).sampled(1)
    return checked


def library_report(rows, baselines, runs, about):
    """Return scores, times and topics of the libraries and of a run of each cell, as Markdown."""
    parts = ["# Comparison with other libraries", "", *(line for paragraph in about for line in (paragraph, "")), NOTES]
    for count in sorted({row["topics"] for row in baselines if row["topics"] is not None}) or [None]:
        shown = [
            [row for row in chosen if count is None or row["topics"] in (count, None)] for chosen in (rows, baselines)
        ]
        ours, theirs = ({label_of(row, topics=count is None): row for row in chosen} for chosen in shown)
        title = "Number of topics determined by the model" if count is None else f"{count} topics"
        parts += [f"## {title}", "", *_score_lines({**ours, **theirs}), "", *_topic_lines(ours, theirs, runs)]
    return "\n".join(parts)


def _score_lines(fits):
    """Return a table of scores and times; several restarts also have a row for their mean prediction."""
    lines = []
    for name, row in fits.items():
        lines.append({**row, "name": name})
        if row.get("restarts", 1) > 1:
            score = row["ensemble_score"]
            lines.append(
                {
                    **row,
                    "name": f"{name}, {row['restarts']} restarts averaged",
                    "score": score,
                    "perplexity": math.exp(-score),
                    "seconds": row["seconds"] * row["restarts"],
                    "topics_99": None,
                }
            )
    columns = (
        Column("", lambda row: str(row["name"]), number=False),
        Column("iterations", iterations_text),
        number_column("score", "score", ".4f"),
        number_column("perplexity", "perplexity", ".1f"),
        number_column("seconds", "seconds", ".2f"),
        number_column("topics (99%)", "topics_99", ".0f"),
    )
    return table_lines(columns, lines)


def _topic_lines(ours, theirs, runs):
    """Return the largest topics of the first fit, each with the topics of other fits that share most words."""
    words_of = {name: _words(runs[row["cell"]]) for name, row in ours.items() if row["cell"] in runs}
    words_of.update({name: row["words"] for name, row in theirs.items()})
    (leader, leading), *others = words_of.items()
    lines = [
        f"The largest topics of {leader}, each with the topics of the others that share most of its {WORDS} words.",
        "",
    ]
    for number, words in enumerate(leading[:SHOWN_TOPICS], start=1):
        lines.append(f"{number}. {leader}: {_code(words)}")
        for name, their_topics in others:
            if their_topics:
                nearest = max(their_topics, key=lambda topic: len(set(topic) & set(words)))
                lines.append(f"   * {name} ({len(set(nearest) & set(words))}): {_code(nearest)}")
        lines.append("")
    return lines


def _words(run):
    return [[word for word, _ in topic.words] for topic in topics(run, WORDS) if topic.share > 0]


def _code(words: Sequence[str]) -> str:
    """Return words as Markdown code, without backticks of their own."""
    return " ".join(f"`{word.replace('`', chr(39))}`" for word in words if word.isprintable())


def probabilities(held: Data, theta: Floats, phi: Floats) -> Floats:
    """Return the probability of each held-out pair's word."""
    probability, columns = np.empty(held.words.size), np.ascontiguousarray(phi.T)
    for d in held.documents():
        first, last = held.offsets[d], held.offsets[d + 1]
        probability[first:last] = columns[held.words[first:last]] @ theta[d]
    return probability


def score_of(held: Data, probability: Floats) -> float:
    """Return the mean log probability of a held-out token, in nats, from the probabilities of the pairs."""
    return float(held.counts @ np.log(probability) / held.counts.sum())


def score(held: Data, theta: Floats, phi: Floats) -> float:
    """Return the mean log probability of a held-out token; `theta` by document, `phi` by topic and word."""
    return score_of(held, probabilities(held, theta, phi))


class Peer(Protocol):
    """A library's model, constructed from `Data` and the arguments of `fitted`."""

    def step(self, iterations: int) -> None:
        """Run some more iterations."""

    def estimate(self) -> tuple[Floats, Floats]:
        """Return theta, shape (documents, topics), and phi, shape (topics, words)."""


class Tomotopy:
    """Collapsed Gibbs sampling, with an asymmetric alpha learned every few sweeps; the state is a sample."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        import tomotopy

        self.arguments, self.size, self.workers = arguments, data.size, arguments.workers
        self.model = tomotopy.LDAModel(
            tw=tomotopy.TermWeight.ONE,
            k=arguments.topics,
            alpha=arguments.alpha,
            eta=arguments.beta / data.size,
            seed=arguments.seed,
        )
        self.model.optim_interval = arguments.optim_interval
        self.known = [d for d in data.documents() if data.offsets[d + 1] > data.offsets[d]]
        for d in self.known:
            self.model.add_doc([str(word) for word in data.tokens(d)])
        self.count = data.offsets.size - 1

    def step(self, iterations: int) -> None:
        """Run some more sweeps."""
        self.model.train(iterations, workers=self.workers)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return estimates from the last sample."""
        arguments, words = self.arguments, np.array([int(word) for word in self.model.used_vocabs])
        total = np.array(self.model.get_count_by_topics(), dtype=np.float64)
        # The library smooths over the words of the training corpus: recover counts, and smooth over the vocabulary.
        eta = arguments.beta / self.size
        probability = np.stack([self.model.get_topic_word_dist(k) for k in range(arguments.topics)])
        counts = probability * (total + eta * words.size)[:, np.newaxis] - eta
        phi = np.full((arguments.topics, self.size), eta)
        phi[:, words] += np.maximum(counts, 0.0)
        alpha = np.asarray(self.model.alpha, dtype=np.float64)
        theta = np.tile(alpha / alpha.sum(), (self.count, 1))
        for d, document in zip(self.known, self.model.docs, strict=True):
            theta[d] = document.get_topic_dist()
        return theta, phi / (total + arguments.beta)[:, np.newaxis]


class Topica:
    """LDA of the library's Rust core, by the sampler that `sampler` names; a longer fit starts afresh."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        import topica

        self.arguments, self.done = arguments, 0
        texts = [[str(word) for word in data.tokens(d)] for d in data.documents()]
        names = [str(word) for word in range(data.size)]
        self.known = [d for d, text in enumerate(texts) if text]
        self.corpus = topica.Corpus.from_documents([texts[d] for d in self.known], vocabulary=names)
        self.count, self.size = len(texts), data.size
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more iterations."""
        import topica

        self.done += iterations
        arguments, self.model = self.arguments, None
        self.model = topica.LDA(
            arguments.topics,
            alpha_sum=arguments.alpha * arguments.topics,
            beta=arguments.beta / self.size,
            optimize_interval=0,
            burn_in=0,
            seed=arguments.seed,
            num_threads=arguments.workers,
            sampler=arguments.sampler,
            use_symmetric_alpha=True,
        )
        self.model.fit(self.corpus, iters=self.done, num_samples=1, sample_interval=1, keep_theta_draws=False)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the library's own estimates."""
        theta = np.full((self.count, self.arguments.topics), 1.0 / self.arguments.topics)
        theta[self.known] = self.model.doc_topic
        phi = np.full((self.arguments.topics, self.size), 1.0 / self.size)
        phi[:, [int(word) for word in self.model.vocabulary]] = self.model.topic_word
        return theta, phi


class Pyrmallet:
    """MALLET's sparse Gibbs sampling in Rust, with learned alpha; a longer fit starts afresh.

    It takes texts, of which it keeps words of letters alone. A fit ends with the mean of five samples.
    """

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        self.arguments, self.done, self.size, self.count = arguments, 0, data.size, data.offsets.size - 1
        words = [self._spelled(word) for word in range(data.size)]
        texts = [" ".join(words[word] for word in data.tokens(d)) for d in data.documents()]
        self.known = [d for d, text in enumerate(texts) if text]
        self.texts = [texts[d] for d in self.known]
        self.model: Any = None

    @staticmethod
    def _spelled(word: int) -> str:
        """Return a word's number in letters."""
        return "".join(chr(ord("a") + int(digit)) for digit in f"{word:07}")

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more iterations."""
        from pyrmallet import LatentDirichletAllocation

        self.done += iterations
        arguments = self.arguments
        self.model = LatentDirichletAllocation(
            arguments.topics,
            doc_topic_prior=arguments.alpha * arguments.topics,
            topic_word_prior=arguments.beta / self.size,
            max_iter=self.done,
            burn_in=min(50, self.done // 2),
            optimize_interval=arguments.optimize_interval,
            sample_interval=max(min(10, self.done // 10), 1),
            random_state=arguments.seed,
        )
        self.model.fit(self.texts)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the library's own estimates."""
        topics = np.asarray(self.model.components_, dtype=np.float64)
        names = ["".join(str(ord(letter) - ord("a")) for letter in word) for word in self.model.feature_names_in_]
        theta = np.full((self.count, self.arguments.topics), 1.0 / self.arguments.topics)
        theta[self.known] = self.model.doc_topic_distributions_
        return theta, _spread(topics / topics.sum(axis=1, keepdims=True), names, self.size)


def matrix(data: Data) -> sparse.csr_matrix:
    """Return a corpus as a sparse matrix, documents by words."""
    from scipy import sparse

    return sparse.csr_matrix((data.counts, data.words, data.offsets), shape=(data.offsets.size - 1, data.size))


class Sklearn:
    """Batch variational Bayes in several processes, which are started before the time is measured."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        from sklearn import decomposition

        self.matrix = matrix(data).astype(np.float64)
        self.model = decomposition.LatentDirichletAllocation(
            arguments.topics,
            doc_topic_prior=arguments.alpha,
            topic_word_prior=arguments.beta / data.size,
            learning_method="batch",
            n_jobs=arguments.workers,
            random_state=arguments.seed,
        )
        decomposition.LatentDirichletAllocation(2, max_iter=1, n_jobs=arguments.workers).fit(
            np.ones((2 * arguments.workers, 2))
        )
        self.done = 0

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more iterations."""
        self.done += iterations
        self.model.set_params(max_iter=self.done).fit(self.matrix)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return posterior means."""
        phi = self.model.components_ / self.model.components_.sum(axis=1, keepdims=True)
        theta = self.model.transform(self.matrix)
        return theta / theta.sum(axis=1, keepdims=True), phi


# Pairs of documents and words that gensim has as Python lists, which take 130 bytes a pair and copies of pages in each
# of its processes; of more, each document is made as it is read
MOST_PAIRS_AS_LISTS = 20_000_000


class Gensim:
    """Online variational Bayes; an iteration is a pass.

    Processes of its own cannot learn priors, so a fit on one core, where alpha and eta may be ``"auto"``, has none.
    """

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        from gensim.matutils import Sparse2Corpus

        self.data, self.arguments, self.done = data, arguments, 0
        stream = Sparse2Corpus(matrix(data).T.tocsc(), documents_columns=True)
        self.corpus = list(stream) if data.words.size <= MOST_PAIRS_AS_LISTS else stream
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more passes."""
        from gensim.models import LdaModel, LdaMulticore

        self.done += iterations
        arguments, self.model = self.arguments, None
        alone = arguments.workers == 1
        learns = arguments.alpha == "auto"
        self.model = (LdaModel if alone else LdaMulticore)(
            corpus=self.corpus,
            id2word={word: str(word) for word in range(self.data.size)},
            num_topics=arguments.topics,
            alpha="auto" if learns else [arguments.alpha] * arguments.topics,
            eta="auto" if learns else arguments.beta / self.data.size,
            passes=self.done,
            random_state=arguments.seed,
            eval_every=None,
            **({} if alone else {"workers": arguments.workers}),
        )

    def estimate(self) -> tuple[Floats, Floats]:
        """Return posterior means."""
        gamma, _ = self.model.inference(self.corpus)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


PEERS: dict[str, Callable[[Data, SimpleNamespace], Peer]] = {
    "scikit-learn": Sklearn,
    "gensim": Gensim,
    "tomotopy": Tomotopy,
    "topica": Topica,
    "pyrmallet": Pyrmallet,
}
ALL: dict[str, Callable[[Data, SimpleNamespace], Peer]] = {**PEERS, **HDPS}
# Libraries whose longer fits start afresh, so that their time is not the sum of the steps
RESTARTS = {"topica", "pyrmallet", "gensim", "scikit-learn"}


def fitted(arguments: SimpleNamespace) -> JsonObject:
    """Fit a library's model, and return its score, time and topics."""
    data, held = Data.read(arguments.train), Data.read(arguments.heldout)
    peer: Peer = ALL[arguments.peer](data, arguments)
    last, samples = arguments.iterations, arguments.samples
    ends = [last - back * arguments.sample_every for back in reversed(range(samples))] or [last]
    probability, seconds = np.zeros(held.words.size), 0.0
    theta, phi = np.empty(0), np.empty(0)
    for iterations in np.diff([0, *ends]).tolist():
        began = time.perf_counter()
        peer.step(iterations)
        seconds += time.perf_counter() - began
        theta, phi = peer.estimate()
        probability += probabilities(held, theta, phi) / len(ends)
    lengths = np.bincount(np.repeat(np.arange(data.offsets.size - 1), np.diff(data.offsets)), weights=data.counts)
    lengths = np.pad(lengths, (0, data.offsets.size - 1 - lengths.size))
    names, sizes = corpora.Corpus(arguments.train).vocabulary.words, lengths @ theta
    falling, cumulative = np.argsort(-sizes, kind="stable"), np.cumsum(np.sort(sizes)[::-1])
    topics_99 = int(np.searchsorted(cumulative, 0.99 * cumulative[-1])) + 1
    words = [[names[word] for word in np.argsort(-phi[k], kind="stable")[: arguments.words]] for k in falling]
    figures = {"score": score_of(held, probability), "seconds": seconds, "samples": samples}
    return {**figures, "topics_99": topics_99, "words": words}


if __name__ == "__main__":
    print_result(fitted)
