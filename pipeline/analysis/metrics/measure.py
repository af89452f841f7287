"""Measure the topics of a model by the metrics of the catalogue.

The dispersion of the residuals of a model's expected counts is by Taddy (2012, section 3.3).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.evaluate import (
    require_disjoint,
    require_no_training_documents,
    require_same_vocabulary,
    require_unseen_by_all,
)
from collapsium.pipeline.analysis.metrics.catalogue import (
    LEAST_EXPECTED,
    Metric,
    Needs,
    is_all,
    metrics_of,
    require_used,
)
from collapsium.pipeline.analysis.metrics.labelled import field_of, measure_with_labels
from collapsium.pipeline.analysis.metrics.measurement import Job, Measurement, measurement
from collapsium.pipeline.analysis.metrics.topic_words import (
    measure_in_documents,
    measure_in_windows,
    measure_words,
    require_words,
)
from collapsium.pipeline.analysis.options import CoherenceOptions, MetricOptions
from collapsium.pipeline.analysis.scoring import Predicted, Scored
from collapsium.pipeline.corpora.new_texts import DocumentSource, TokenTexts, documents_for, names_corpus, token_texts
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.base import Future, in_order
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import load_blocks
from collapsium.pipeline.models.model import Model, require_training_corpus
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.models.topics import word_tables
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, paths_of, without_none
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OptionError
from collapsium.storage.runs.members import leaves
from collapsium.storage.units import Counting, silent
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import IntegratesProportions
from collapsium.workers.kernels import prediction
from collapsium.workers.kernels.child_processes import fill_cache
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.prediction import DirichletTopics, TokenSequences

SAMPLE = 2000  # Maximum number of documents for residuals; a document has one for each word of the vocabulary
DOCUMENTS_AT_A_TIME, WORDS_AT_A_TIME = 256, 8192  # Cells in memory


@dataclass(frozen=True)
class ResidualSums:
    """Sums over documents and words; they add over shards."""

    squares: float = 0.0  # Sum of the squared residuals, in units of their variances
    cells: int = 0  # Number of cells that are expected to have some tokens

    def __add__(self, other: ResidualSums) -> ResidualSums:
        return ResidualSums(self.squares + other.squares, self.cells + other.cells)


def residual_sums(counts: Floats, expected: Floats, lengths: Floats) -> ResidualSums:
    """Return the sums of a table of documents and words; `lengths` are the documents' tokens, shape (documents, 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (counts - expected) ** 2 / (expected * (1.0 - expected / lengths))
    return ResidualSums(float(squares[expected > 0.0].sum()), int((expected > LEAST_EXPECTED).sum()))


def measure_residuals(metrics: Sequence[Metric], job: Job, corpus: Corpus) -> list[Measurement]:
    """Measure the dispersion of the counts of training documents, of a random sample where there are many."""
    documents = corpus.manifest.documents
    generator = Stream(job.seed, "residual documents").generator()
    chosen = np.sort(generator.choice(documents, size=min(SAMPLE, documents), replace=False))
    starts = np.cumsum([0, *(reference.record.documents for reference in corpus.references)])
    values = []
    for _, model in job.named:
        tasks = [
            job.executor.submit(_of_shard, model.folder.address, reference, number, rows - first)
            for number, (reference, first) in enumerate(zip(corpus.references, starts, strict=False))
            if (rows := chosen[(chosen >= first) & (chosen < first + reference.record.documents)]).size
        ]
        sums = sum(job.executor.collect(tasks), ResidualSums())
        topics, words = len(model.describe(model.rows(0), 1).ids), model.record.blocks[-1]
        # The topics' parameters are estimated from all documents.
        parameters = chosen.size * (topics - 1) + topics * (words - 1) * chosen.size / documents
        if sums.cells <= parameters:
            raise InputError(corpus.url, "its documents are too short for as many topics to leave residuals")
        values.append(sums.squares / (sums.cells - parameters))
    of = f"{chosen.size:,} of {documents:,} training documents" if chosen.size < documents else "all training documents"
    return [measurement(metric, job.named, values, {"sampled": of}) for metric in metrics]


def _of_shard(url: str, reference: ShardReference, number: int, rows: Ints) -> ResidualSums:
    model, documents = Model(url), reference.documents()
    keep = np.zeros(len(documents), dtype=bool)
    keep[rows] = True
    shard = Shard.of(number, documents.take(keep))
    theta = np.asarray(model.family.infer(model.local_state(number), model.global_state)["document_topic"])[rows]
    owner, total = np.repeat(np.arange(shard.documents), np.diff(shard.offsets)), ResidualSums()
    column, lengths = shard.words[shard.position], shard.lengths[:, np.newaxis].astype(np.float64)
    for start, _, table in word_tables(model):
        for low in range(0, len(table), WORDS_AT_A_TIME):
            phi = table[low : low + WORDS_AT_A_TIME]
            for first in range(0, shard.documents, DOCUMENTS_AT_A_TIME):
                some = slice(first, first + DOCUMENTS_AT_A_TIME)
                expected = lengths[some] * (theta[some] @ phi.T)
                pairs = slice(*shard.offsets[[first, min(first + DOCUMENTS_AT_A_TIME, shard.documents)]])
                words = column[pairs] - start - low
                inside = (words >= 0) & (words < len(phi))
                counts = np.zeros_like(expected)
                np.add.at(counts, (owner[pairs][inside] - first, words[inside]), shard.counts[pairs][inside])
                total += residual_sums(counts, expected, lengths[some])
    return total


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


# Effort of the estimates; the numbers follow Wallach et al. (2009), or are smaller, for long documents.
PARTICLES = 20  # Particles of the left-to-right estimate
RUNS = 3  # Weights of annealed importance sampling that are averaged
STEPS = 1000  # Even steps of annealed importance sampling from the prior to the posterior
DOCUMENTS_PER_TASK = 4  # Documents of a task; few, so that long documents do not delay others
NUMBERS_PER_DOCUMENT = 1 << 40  # Random numbers that each document has for itself
EFFORT = {  # What definitions of the metrics name
    "particles": PARTICLES,
    "runs": RUNS,
    "steps": STEPS,
    "documents_per_task": DOCUMENTS_PER_TASK,
    "numbers_per_document": NUMBERS_PER_DOCUMENT,
}
KERNELS: Mapping[str, AnyKernel] = {
    "left-to-right": prediction.left_to_right,
    "annealed-importance": prediction.annealed_importance,
}


def measure_likelihood(metrics: Sequence[Metric], job: Job, unseen: Corpus, sample: int) -> list[Measurement]:
    """Estimate the likelihood of a random sample of unseen documents."""
    documents = unseen.manifest.documents
    generator = Stream(job.seed, "likelihood documents").generator()
    chosen = np.sort(generator.choice(documents, min(sample, documents), replace=False)).astype(np.int64)
    measurements, done = [], 0
    for metric in metrics:
        values, tokens = [], 0
        for _, model in job.named:
            blocks = load_blocks(model, job.executor)
            # Without links tasks run in this process, where an interrupt would wait for the compiler.
            if job.executor.links() is None:
                fill_cache([KERNELS[metric.name]])
            total, tokens = 0.0, 0
            for logs, lengths in in_order(job.executor, _submitted(metric, model, unseen, chosen, blocks, job)):
                total, tokens, done = total + float(logs.sum()), tokens + int(lengths.sum()), done + lengths.size
                job.progress(done)
            if not tokens:
                raise InputError(unseen.url, "no token is left to score")
            values.append(total / tokens)
        of = f"all {documents:,} documents" if chosen.size == documents else (
            f"{chosen.size:,} of {documents:,} documents, drawn at random"
        )  # fmt: skip
        placeholders = {
            **EFFORT,
            "sampled": f"{of}, with {tokens:,} tokens",
        }
        measurements.append(measurement(metric, job.named, values, placeholders))
    return measurements


def _submitted(
    metric: Metric, model: Model, unseen: Corpus, chosen: Ints, blocks: list[Future[tasks.Block]], job: Job
) -> Iterator[Future[tuple[Floats, Ints]]]:
    """Submit a task for every `DOCUMENTS_PER_TASK` documents of each shard."""
    first = 0
    for reference in unseen.references:
        low, high = np.searchsorted(chosen, [first, first + reference.record.documents])
        for start in range(int(low), int(high), DOCUMENTS_PER_TASK):
            end = min(start + DOCUMENTS_PER_TASK, int(high))
            rows = chosen[start:end] - first
            url = model.folder.address
            yield job.executor.submit(_estimate, url, reference, rows, start, blocks, metric.name, job.seed)
        first += reference.record.documents


def _estimate(
    url: str, reference: ShardReference, rows: Ints, first: int, blocks: list[tasks.Block], name: str, seed: int
) -> tuple[Floats, Ints]:
    """Return the log likelihood and the tokens of some documents of a shard, by their number in the sample."""
    model, documents = Model(url), reference.documents()
    keep = np.zeros(len(documents), dtype=bool)
    keep[rows] = True
    shard = Shard.of(reference.number, documents.take(keep))
    family = cast("IntegratesProportions[Any, Any, Any, Any]", model.family)
    topics = family.dirichlet_topics(tasks.gather(blocks, shard.words, complete=True), model.global_state)
    return log_likelihood(shard, topics, name, seed, first), shard.lengths


def log_likelihood(shard: Shard, topics: DirichletTopics, name: str, seed: int, first: int = 0) -> Floats:
    """Estimate the log likelihood of documents under fixed topics."""
    stream = Stream(seed, name)
    numbers = first + np.arange(shard.documents, dtype=np.int64)
    tokens = np.repeat(shard.position, shard.counts)
    ends = np.concatenate([[0], np.cumsum(shard.lengths)]).astype(np.int64)
    for number, low, high in zip(numbers.tolist(), ends[:-1], ends[1:], strict=True):
        tokens[low:high] = stream.at(purpose=f"{name} order", place=number).generator().permutation(tokens[low:high])
    sequences = TokenSequences(ends, tokens.astype(np.int32), numbers * NUMBERS_PER_DOCUMENT)
    logs = np.empty(shard.documents)
    if name == "left-to-right":
        prediction.left_to_right(sequences, topics, PARTICLES, stream.key(), logs)
    else:
        prediction.annealed_importance(sequences, topics, STEPS, RUNS, stream.key(), logs)
    return logs


def document_sums(predicted: Predicted, members: int = 1) -> tuple[Floats, Floats]:
    """Return the log probability of each document's scored tokens, in nats, and their number, shape (documents,).

    With several members, `predicted` has the sums of their probabilities, whose means are scored.
    """
    documents = predicted.offsets.size - 1
    owner = np.repeat(np.arange(documents), np.diff(predicted.offsets))
    logs = np.bincount(owner, predicted.counts * special.log(predicted.probability / members), documents)
    return np.asarray(logs, np.float64), np.asarray(np.bincount(owner, predicted.counts, documents), np.float64)


def completion_sums(predicted: Predicted) -> Floats:
    """Return sums over the documents of a shard that have scored tokens.

    They are the log probabilities of tokens, the tokens, the documents' mean log probabilities, and the documents.
    """
    if not predicted.counts.size:
        return np.zeros(4)
    logs, tokens = document_sums(predicted)
    some = tokens > 0
    return np.array([logs.sum(), tokens.sum(), (logs[some] / tokens[some]).sum(), some.sum()])


def measure_completion(metrics: Sequence[Metric], job: Job, what: Scored) -> list[Measurement]:
    """Measure perplexities of held-out tokens or of unseen documents."""
    for corpus in (what.corpus, what.tokens):
        require_same_vocabulary(job.named, corpus)
    note = require_disjoint(job.named, what)
    first = job.named[0][1]
    held = what.held(first)
    if not what.known:
        require_no_training_documents(job.named, what.corpus, job.executor)
    submit = what.submit(held, job.executor, job.seed)
    values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    documents = 0.0
    for _, model in job.named:
        predicted = submit(model, load_blocks(model, job.executor))
        parts = job.executor.collect([job.executor.submit(completion_sums, prediction) for prediction in predicted])
        logs, tokens, means, documents = sum(parts, np.zeros(4)).tolist()
        if not tokens:
            raise InputError(what.tokens.url, "no token is left to score")
        for metric in metrics:
            log = logs / tokens if metric.name == "perplexity" else means / documents
            values[metric.name].append(math.exp(-log))
    completion = what.definition.removesuffix("; perplexity = exp(-score)") + note
    placeholders = {"documents": int(documents), "completion": completion}
    return [measurement(metric, job.named, values[metric.name], placeholders) for metric in metrics]


# Errors of missing or unsuitable inputs; with ``all`` a metric is then left out
REFUSALS = (AbsentError, InputError, MismatchError, OptionError)


@shows("measuring", "documents")
@keywords(options=MetricOptions, counting=CoherenceOptions, reading=ReadingOptions, scheduling=Scheduling)
def measure(
    run: str | os.PathLike[str],
    *,
    options: MetricOptions,
    counting: CoherenceOptions,
    reading: ReadingOptions,
    scheduling: Scheduling,
    heldout: str | os.PathLike[str] | None = None,
    unseen: DocumentSource | None = None,
    seed: int = 0,
    notice: Callable[[str], None] | None = None,
    progress: Counting = silent,
) -> dict[str, Measurement]:
    """Measure the topics of a model by published metrics; ``collapsium evaluate --help`` lists their names.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model, of any family of topics over words. Nodes of a tree count as topics.
    options : MetricOptions
        Names of the metrics, words of each topic, field of labels, and sample of documents.
    counting : CoherenceOptions
        Documents in which co-occurrences of the topics' words are counted.
    reading : ReadingOptions
        Differences between new texts and the documents that a model was fitted to.
    heldout : path, optional
        Held-out tokens of the training documents, for perplexities; with `unseen`, of those documents.
    unseen : Corpus, path, sequence of paths or str, column or frame, optional
        A corpus with the model's vocabulary, or texts: new documents, for labels, likelihoods and perplexities.
    seed : int, optional
        Seed of random halves and samples of documents, and of sampling families.
    notice : callable, optional
        Receives lines for the user, such as metrics that ``all`` leaves out.

    Returns
    -------
    dict of str to Measurement
        Measurements by name, in the order of the names.

    Raises
    ------
    OptionError
        A metric is unknown, or what it needs is missing.
    MismatchError
        A corpus has another vocabulary, or documents or tokens that the model was fitted to; the model is of vectors.
    InputError
        There are no documents, or no documents with labels.
    """
    chosen = metrics_of(options.metrics)
    sample = options.sample_documents
    sampled = None if sample == MetricOptions.model_fields["sample_documents"].default else sample
    required = {"label_field": options.label_field, "coherence": counting.coherence, "sample_documents": sampled}
    if not is_all(options.metrics):
        require_used(chosen, required)
    texts = [
        source for source in (counting.coherence, heldout, unseen) if source is not None and not names_corpus(source)
    ]
    unread = next(iter(without_none(reading)), None)
    if unread is not None and not texts:
        raise OptionError("applies only to texts, and none are named", unread)
    named = [(name, Model(url)) for name, url in leaves(run)]
    family = named[0][1].record.family
    if load_family(family).corpus_kind != DOCUMENTS:
        raise MismatchError(f"{os.fspath(run)}: family '{family}' has components of vectors, not topics over words")
    with contextlib.closing(open_executor(**dict(scheduling))) as executor:
        job = Job(named, executor, options.top_words, seed, progress)
        documents = {"coherence": counting.coherence, "heldout": heldout, "unseen": unseen}
        with ExitStack() as stack:
            reading_options = without_none(reading)
            plan = _Plan(job, run, documents, reading_options, scheduling, options, notice, stack)
            return plan.measurements(chosen)


@dataclass(frozen=True)
class _Plan:
    """Measures metrics in groups that need the same inputs, each of which is opened once, when it is first needed."""

    job: Job
    run: str | os.PathLike[str]
    documents: Mapping[str, Any]  # By the option that names them
    reading: Mapping[str, Any]
    scheduling: Scheduling
    options: MetricOptions
    notice: Callable[[str], None] | None
    stack: ExitStack
    opened: dict[str, Corpus] = field(default_factory=dict)

    def corpus(self, option: str) -> Corpus:
        """Return the corpus that an option names, or that is made of the texts that it names."""
        if option not in self.opened:
            named = self.documents[option]
            # Options of reading apply to the other documents.
            reading = {} if names_corpus(named) else self.reading
            opened = documents_for(self.run, named, reading=reading, **dict(self.scheduling))
            self.opened[option] = self.stack.enter_context(opened).corpus
        return self.opened[option]

    def texts(self) -> TokenTexts:
        """Return the texts whose windows are counted."""
        named = self.documents["coherence"]
        if named is None:
            raise OptionError("needs texts in which windows of tokens are counted; name them (`coherence` TEXTS)")
        if names_corpus(named):
            raise OptionError(
                f"needs texts, and {paths_of(named)[0]} is a corpus, which has no order of words; name the texts that "
                "were ingested (`coherence` TEXTS)"
            )
        return self.stack.enter_context(token_texts(self.run, named, self.reading, self.scheduling))

    def measurements(self, chosen: Sequence[Metric]) -> dict[str, Measurement]:
        """Return the measurements of metrics; what they need is checked before the first is measured."""
        groups = {needs: [metric for metric in chosen if metric.needs is needs] for needs in Needs}
        ready = []
        for needs, metrics in groups.items():
            if not metrics:
                continue
            try:
                ready.append(self._ready(needs, metrics))
            except REFUSALS as error:
                self._leave_out(metrics, error)
        results: dict[str, Measurement] = {}
        for group, run in ready:
            try:
                results.update({result.name: result for result in run()})
            except REFUSALS as error:
                self._leave_out(group, error)
        return {metric.name: results[metric.name] for metric in chosen if metric.name in results}

    def _leave_out(self, metrics: Sequence[Metric], error: Exception) -> None:
        """Report metrics that cannot be measured; raise the error if they are named one by one."""
        names = ", ".join(metric.name for metric in metrics)
        if not is_all(self.options.metrics):
            if isinstance(error, OptionError):
                raise OptionError(f"{names}: {error.message}", error.parameter) from None
            raise error
        if self.notice is not None:
            self.notice(f"left out: {names}: {error}")

    def _ready(
        self, needs: Needs, metrics: Sequence[Metric]
    ) -> tuple[Sequence[Metric], Callable[[], list[Measurement]]]:
        """Check what metrics need, and return a function that measures them."""
        job = self.job
        if needs is Needs.TOPICS:
            return metrics, lambda: measure_words(metrics, job)
        if needs is Needs.FITTED:
            for _, model in job.named:
                if not isinstance(model.family, IntegratesProportions):
                    raise OptionError(
                        f"family '{model.record.family}' has no Dirichlet prior of proportions over flat topics"
                    )
                if getattr(model.family.options, "weights", None) is not None:
                    raise OptionError(
                        "the model has weights of words, so that its topics are not probabilities of tokens"
                    )
            training = require_training_corpus(job.named[0][1])
            return metrics, lambda: measure_residuals(metrics, job, training)
        if needs is Needs.TEXTS:
            texts = self.texts()
            return metrics, lambda: measure_in_windows(metrics, job, texts)
        if needs is Needs.CORPUS:
            counted = (
                self.corpus("coherence")
                if self.documents["coherence"] is not None
                else require_training_corpus(job.named[0][1])
            )
            counted.require(DOCUMENTS, "coherence")
            require_words(job.named[0][1], counted)
            return metrics, lambda: measure_in_documents(metrics, job, counted)
        if needs in (Needs.LABELS, Needs.CLASSES):
            return metrics, self._with_labels(metrics)
        if needs is Needs.DOCUMENTS:
            for _, model in self.job.named:
                if not isinstance(model.family, IntegratesProportions):
                    raise OptionError(
                        f"family '{model.record.family}' has no Dirichlet prior of proportions over flat topics, which "
                        "the estimate integrates out"
                    )
            unseen = self._unseen
            return metrics, (lambda: measure_likelihood(metrics, self.job, unseen, self.options.sample_documents))
        heldout, new = self.documents["heldout"] is not None, self.documents["unseen"] is not None
        if not heldout and not new:
            raise OptionError("needs held-out tokens (`heldout` CORPUS) or unseen documents (`unseen` CORPUS|TEXTS)")
        if new:
            what = Scored(self._unseen, False, self.corpus("heldout") if heldout else None)
        else:
            what = Scored(self.corpus("heldout"), True)
        return metrics, lambda: measure_completion(metrics, job, what)

    def _with_labels(self, metrics: Sequence[Metric]) -> Callable[[], list[Measurement]]:
        model = self.job.named[0][1]
        if self.documents["unseen"] is None:
            training = require_training_corpus(model)
            label_field = field_of(training, self.options.label_field)
            return lambda: measure_with_labels(metrics, self.job, label_field, training, unseen=False)
        unseen = self._unseen
        label_field = field_of(unseen, self.options.label_field)
        training_or_none = None
        if any(metric.name == "classifier-accuracy" for metric in metrics):
            try:
                training_or_none = require_training_corpus(model)
                field_of(training_or_none, label_field)
            except (AbsentError, MismatchError, OptionError):
                training_or_none = None
        return lambda: measure_with_labels(
            metrics, self.job, label_field, unseen, unseen=True, training=training_or_none
        )

    @cached_property
    def _unseen(self) -> Corpus:
        """The unseen documents, to none of which a model was fitted."""
        if self.documents["unseen"] is None:
            raise OptionError("needs documents that the model was not fitted to (`unseen` CORPUS|TEXTS)")
        unseen = self.corpus("unseen")
        unseen.require_documents()
        require_same_vocabulary(self.job.named, unseen)
        require_unseen_by_all(self.job.named, unseen)
        require_no_training_documents(self.job.named, unseen, self.job.executor)
        return unseen
