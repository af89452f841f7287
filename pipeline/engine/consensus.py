"""Match the topics of an ensemble's models.

The models are aligned one to one with their mean, in rounds, as in generalised Procrustes analysis (Gower 1975). Two
topics are alike by their words, the Bhattacharyya coefficient sum_w sqrt(phi_kw phi_lw), and by their documents, the
cosine of n_d^(1/2) theta_dk and n_d^(1/2) theta_dl. Values are rounded to whole steps, so that sums of products are
exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.plan import release_memory
from collapsium.pipeline.engine.save import finish_model, names_in
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.engine.setup.warm_start import WarmReference, WarmStart
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.models.model import Model, width_of
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.models.topics import occupied
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import ClusterError, CollapsiumError
from collapsium.storage.io.folder import replaced
from collapsium.storage.runs.members import averaged_models, mean_folder
from collapsium.storage.runs.model import MatchedMember, ModelWriter, read_model_record
from collapsium.storage.runs.run import MEMBERS, Run
from collapsium.storage.runs.topic_names import TopicName
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.family import IntegratesProportions
from collapsium.workers.families.mean import ABSENT

if TYPE_CHECKING:
    from collapsium.workers.arrays.random_streams import Stream


@dataclass(frozen=True)
class JoinedModel:
    """A model of the ensemble, and its columns."""

    url: str  # Folder of the model
    topics: tuple[int, ...]  # Columns of its topics that have tokens, ascending
    fixed: int = 0  # Topics, the first ones, that have the same column in all models, as they were seeded
    # Its column for each joined topic, `ABSENT` where it has none; empty before it is matched
    columns: tuple[int, ...] = ()

    @staticmethod
    def of(url: str) -> JoinedModel:
        """Return a model of the ensemble, not matched yet."""
        model = Model(url)
        topics = tuple(int(topic) for topic in occupied(model))
        return JoinedModel(model.folder.address, topics, len(model.seed_names))

    def reference(self, shard: int) -> WarmReference:
        """Return the reference to a shard's documents, with the columns that were matched."""
        return WarmReference(self.url, shard, tuple(column for column in self.columns if column != ABSENT), 1.0)

    @property
    def places(self) -> list[int]:
        """The joined topics that it has a match for, ascending."""
        return [place for place, column in enumerate(self.columns) if column != ABSENT]


@dataclass(frozen=True)
class JoinedReference(WarmReference):
    """Reference to the parts of several models from which a shard's first local state is made."""

    models: tuple[JoinedModel, ...] = ()  # The models, matched
    # Tokens of the mean proportions that stay in each document's prior, as in a start with a strength
    strength: float = 0.0

    def local(self, shard: AnyShard) -> None:  # noqa: ARG002
        """Return None: the mean of several models is not a local state."""
        return

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Read the means of the documents' proportions, and of the topics over the shard's words."""
        columns = np.array(self.topics if self.columns else range(len(self.topics)), dtype=np.int64)
        width = self.columns or columns.size
        theta = np.zeros((shard.documents, width), dtype=np.float32)
        phi, having = np.zeros((shard.words.size, width), dtype=np.float32), np.zeros(width, dtype=np.float32)
        for model in self.models:
            arrays, places = model.reference(shard.number).arrays(shard, stream), columns[model.places]
            theta[:, places] += arrays["document_topic"]
            phi[:, places] += arrays["word_topic"]
            having[places] += 1.0
        theta /= np.float32(len(self.models))
        phi /= np.maximum(having, 1.0)
        prior = {"document_strength": np.full(shard.documents, self.strength, dtype=np.float32)}
        return {"document_topic": theta, "word_topic": phi, **(prior if self.strength else {})}


def mean_of(models: Sequence[JoinedModel], read: Callable[[JoinedModel], Floats]) -> tuple[Floats, Floats]:
    """Return the sums of matched models' values by joined topic, and the models that have each topic."""
    sums = np.zeros((0, 0))
    having = np.zeros(len(models[0].columns))
    for model in models:
        columns = [column for column in model.columns if column != ABSENT]
        values = read(model)[:, columns]
        if not sums.size:
            sums = np.zeros((len(values), having.size))
        sums[:, model.places] += values
        having[model.places] += 1.0
    return sums, having


# Steps to which values are rounded, so that sums of products are whole numbers below 2^53, which add exactly
WORD_STEPS = 2.0**20  # Steps of 1 in the root of a word's probability; the squares of a topic's words add up to 1
# Steps of 1 in a proportion; products are weighted by the documents' tokens, up to 2^29 in a shard
DOCUMENT_STEPS = 2.0**12


@dataclass(frozen=True)
class Overlaps:
    """Sums of products of joined topics and a model's topics, in steps, which add exactly."""

    products: Ints  # Sums over words or documents; int64 (joined topics, topics of the model)
    # Sums of the squares of each; int64 (joined topics,) and (topics of the model,)
    joined: Ints
    member: Ints

    def __add__(self, other: Overlaps) -> Overlaps:
        """Return the sum over the words or documents of both."""
        return Overlaps(self.products + other.products, self.joined + other.joined, self.member + other.member)

    @staticmethod
    def of(joined: Floats, member: Floats, weights: Floats) -> Overlaps:
        """Return the overlaps of values in whole steps; every sum is below 2^53, so that any order gives its bits."""
        weighted = joined * weights[:, np.newaxis]
        return Overlaps(
            (weighted.T @ member).astype(np.int64),
            (weighted * joined).sum(axis=0).astype(np.int64),
            (member * member * weights[:, np.newaxis]).sum(axis=0).astype(np.int64),
        )

    @property
    def coefficients(self) -> Floats:
        """Bhattacharyya coefficients of topics, from the roots of their words' probabilities."""
        return self.products / WORD_STEPS**2

    @property
    def cosines(self) -> Floats:
        """Cosines of proportions; 0 where all of a topic's are rounded to 0."""
        joined, member = (np.sqrt(np.maximum(sums, 1).astype(np.float64)) for sums in (self.joined, self.member))
        return self.products / joined[:, np.newaxis] / member


def total_overlaps(parts: Sequence[list[Overlaps]]) -> list[Overlaps]:
    """Return the sum over blocks or shards for each model."""
    total = parts[0]
    for part in parts[1:]:
        total = [sums + more for sums, more in zip(total, part, strict=True)]
    return total


def word_overlaps(mean: Sequence[JoinedModel], models: Sequence[JoinedModel], block: int) -> list[Overlaps]:
    """Compare the topics of models with the mean of matched ones over a block of the vocabulary."""
    sums, having = mean_of(mean, lambda model: _word_topic(model, block))
    joined = np.rint(np.sqrt(sums / np.maximum(having, 1.0)) * WORD_STEPS)
    weights = np.ones(len(joined))
    results = []
    for model in models:
        member = np.rint(np.sqrt(_word_topic(model, block)[:, list(model.topics)]) * WORD_STEPS)
        results.append(Overlaps.of(joined, member, weights))
    return results


def document_overlaps(
    mean: Sequence[JoinedModel], models: Sequence[JoinedModel], shard: ShardReference, every: int
) -> list[Overlaps]:
    """Compare the topics of models with the mean of matched ones over a shard's documents."""
    lengths = np.asarray(shard.load().lengths[::every], dtype=np.float64)
    sums, _ = mean_of(mean, lambda model: _document_topic(model, shard.number, every))
    joined = np.rint(sums / len(mean) * DOCUMENT_STEPS)
    results = []
    for model in models:
        member = np.rint(_document_topic(model, shard.number, every)[:, list(model.topics)] * DOCUMENT_STEPS)
        results.append(Overlaps.of(joined, member, lengths))
    return results


def _word_topic(joined: JoinedModel, block: int) -> Floats:
    """Return the probabilities of a block's words, shape (words, columns of the model)."""
    model = Model(joined.url)
    phi = model.family.probabilities(model.rows(block), model.global_state)["word_topic"]
    return np.maximum(np.asarray(phi, dtype=np.float64), 0.0)


def _document_topic(joined: JoinedModel, shard: int, every: int) -> Floats:
    """Return the proportions of one document in `every` of a shard, shape (documents, columns of the model)."""
    model = Model(joined.url)
    theta = model.family.infer(model.local_state(shard), model.global_state)["document_topic"][::every]
    return np.asarray(theta, dtype=np.float64)


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


# Extent of the matching; measured on the page "Consensus"
ROUNDS = 4  # Rounds, at most: on KOS, NIPS and Reuters matches hardly change after the second
MATCHED_DOCUMENTS = 20_000  # Documents by which topics are compared, at most, spread evenly over the corpus
# Memory of the overlaps that wait on the driver, which limits how many models and tasks are compared at a time
OVERLAP_BYTES = 256e6
ATTEMPTS = 3  # Attempts of a round whose work a cluster loses


@dataclass(frozen=True)
class Consensus:
    """The matched models of an ensemble."""

    models: tuple[JoinedModel, ...]  # The models with their columns; the joined topics are the first model's
    rounds: int  # Rounds of matching
    overlap: float  # Mean Bhattacharyya coefficient of the models' topics and the joined topics

    @property
    def topics(self) -> tuple[int, ...]:
        """Columns of the joined topics in the first model."""
        return self.models[0].columns

    def start(self, corpus: Corpus, strength: float = 0.0) -> WarmStart:
        """Return the start of the fit from the means; hyperparameters continue from the first model."""
        url = self.models[0].url
        record, shards = Model(url).record, range(len(corpus.manifest.shards))
        references = [
            JoinedReference(url, number, self.topics, 1.0, models=self.models, strength=strength) for number in shards
        ]
        return WarmStart(references, record.family, record.options, url)


def join(urls: Sequence[str], corpus: Corpus, executor: Executor, at_a_time: int) -> Consensus:
    """Match the topics of models of one corpus.

    Each round matches every model to the mean of the models as they were matched before, with the largest sum of
    similarities; the first round matches them to the first model, whose topics the joined ones are.
    """
    # The plan of a fit's memory counts on the memory of its sweeps.
    release_memory(executor)
    models = [JoinedModel.of(url) for url in urls]
    models[0] = replace(models[0], columns=models[0].topics)
    mean, overlap, rounds, unchanged = models[:1], 0.0, 0, False
    while rounds < ROUNDS and not unchanged:
        matched, overlap = _matched_again(mean, models, corpus, executor, at_a_time)
        unchanged, mean, rounds = matched == mean, matched, rounds + 1
    return Consensus(tuple(mean), rounds, overlap)


def _matched_again(
    mean: Sequence[JoinedModel], models: Sequence[JoinedModel], corpus: Corpus, executor: Executor, at_a_time: int
) -> tuple[list[JoinedModel], float]:
    """Match the models to a mean; lost work is repeated, because nothing was changed."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _round(mean, models, corpus, executor, at_a_time)
        except ClusterError as error:
            if attempt == ATTEMPTS:
                raise
            executor.recover(error)
    raise RuntimeError("a rule allows at least one attempt")


def _round(
    mean: Sequence[JoinedModel], models: Sequence[JoinedModel], corpus: Corpus, executor: Executor, at_a_time: int
) -> tuple[list[JoinedModel], float]:
    """Match the models to the mean of others, some at a time; return them, and the mean overlap of their words."""
    max_topics = max(len(model.topics) for model in models)
    tasks = max(min(at_a_time, int(OVERLAP_BYTES / (8 * max_topics * max_topics))), 1)
    width = max(int(OVERLAP_BYTES / (8 * max_topics * max_topics * tasks)), 1)
    blocks, every = range(len(Model(models[0].url).blocks)), max(-(-corpus.manifest.documents // MATCHED_DOCUMENTS), 1)
    # Models of the stochastic schedule have no proportions of their documents.
    fitted = all(Model(model.url).fitted for model in models)
    matched: list[JoinedModel] = []
    overlaps: list[float] = []
    for low in range(0, len(models), width):
        some = models[low : low + width]
        words = _total(executor, word_overlaps, [(mean, some, block) for block in blocks], tasks)
        similarities = [overlap.coefficients for overlap in words]
        if fitted:
            compared = [(mean, some, reference, every) for reference in corpus.references]
            documents = _total(executor, document_overlaps, compared, tasks)
            similarities = [
                similarity + overlap.cosines for similarity, overlap in zip(similarities, documents, strict=True)
            ]
        for number, (model, similar) in enumerate(zip(some, similarities, strict=True)):
            places, topics = _assigned(similar, mean[0], model)
            columns = np.full(len(mean[0].columns), ABSENT, dtype=np.int64)
            columns[places] = np.asarray(model.topics, dtype=np.int64)[topics]
            matched.append(replace(model, columns=tuple(columns.tolist())))
            overlaps.append(float(words[number].coefficients[places, topics].mean()))
    return matched, float(np.mean(overlaps))


def _total(
    executor: Executor,
    function: Callable[..., list[Overlaps]],
    arguments: Sequence[tuple[object, ...]],
    at_a_time: int,
) -> list[Overlaps]:
    """Return the sums of the overlaps that a function returns for several arguments, some of them at a time."""
    total: list[list[Overlaps]] = []
    for low in range(0, len(arguments), at_a_time):
        futures = [executor.submit(function, *argument) for argument in arguments[low : low + at_a_time]]
        total = [total_overlaps([*total, *executor.collect(futures)])]
    return total[0]


def _assigned(similar: Floats, first: JoinedModel, model: JoinedModel) -> tuple[Ints, Ints]:
    """Match joined topics to a model's topics, maximising the sum of similarities; seeded topics match themselves."""
    from scipy import optimize

    joined, topic_ids = np.asarray(first.columns)[:, np.newaxis], np.asarray(model.topics)[np.newaxis]
    seeded = (joined < model.fixed) | (topic_ids < model.fixed)
    # Similarities are at most 2 each, so that a pair of the same seeds outweighs all others.
    similar = np.where(seeded & (joined != topic_ids), -1.0, similar) + np.where(
        seeded & (joined == topic_ids), 4.0, 0.0
    )
    places, topics = optimize.linear_sum_assignment(similar, maximize=True)
    allowed = similar[places, topics] >= 0.0
    return places[allowed], topics[allowed]


def has_mean(request: Request) -> bool:
    """Return true if a run has several models, whose topics are matched and averaged when it ends."""
    if request.has_consensus or request.keep == "best":
        return False
    several = max(request.restarts, 1) * max(request.limits.samples, 1) > 1
    return several and issubclass(load_family(request.family), IntegratesProportions)


def is_mean_current(run: Run) -> bool:
    """Return true if the mean of a run's members is complete, and they are the models that were matched."""
    try:
        mean = Model(mean_folder(run).url)
        # A store that failed after the record was written leaves a mean without a summary.
        return bool(mean.members) and mean.record.summarised
    except CollapsiumError:
        return False


def save_mean(run: Run, request: Request, executor: Executor, at_a_time: int, notice: Callable[[str], None]) -> None:
    """Match the models of a run, and record their mean."""
    target, members = mean_folder(run), run.folder / MEMBERS
    folders = averaged_models(run.folder.url)
    urls = [(members / name).address for name in folders]
    # All topics of the others have a match in the model with most of them, so that proportions add up to one.
    occupied = [len(JoinedModel.of(url).topics) for url in urls]
    first = int(np.argmax(occupied))
    order = [first, *(number for number in range(len(urls)) if number != first)]
    consensus = join([urls[number] for number in order], request.corpus, executor, at_a_time)
    columns = dict(zip(order, all_columns(consensus), strict=True))
    matched = tuple(
        MatchedMember(folder=name, digest=Model(urls[number]).record.digest, columns=tuple(columns[number].tolist()))
        for number, name in enumerate(folders)
    )
    names = _lasting_names(run, folders[first])
    record = Model(urls[first]).record.model_copy(update={"parts": {}, "members": matched, "summarised": False})
    with replaced(target) as folder:
        finish_model(ModelWriter(folder), record, request.corpus, executor, lambda _: names, notice)


def all_columns(consensus: Consensus) -> list[Ints]:
    """Return the columns of matched models for all columns of the first, of empty topics too."""
    widths = [width_of(Model(model.url)) for model in consensus.models]
    result = []
    for model, width in zip(consensus.models, widths, strict=True):
        columns = np.full(widths[0], ABSENT, dtype=np.int64)
        columns[list(consensus.topics)] = model.columns
        unmatched = [topic for topic in model.topics if topic not in model.columns]
        left = [*unmatched, *(column for column in range(width) if column not in {*model.columns, *unmatched})]
        free = np.flatnonzero(columns == ABSENT)[: len(left)]
        columns[free] = left[: free.size]
        result.append(columns)
    return result


def _lasting_names(run: Run, first: str) -> dict[int, TopicName]:
    """Return the names that topics had in an earlier mean; none if their ids belonged to another member."""
    target = mean_folder(run)
    try:
        members = read_model_record(target).members
    except CollapsiumError:
        return {}
    before = next((member.folder for member in members if member.columns == tuple(range(len(member.columns)))), None)
    return names_in(target) if before == first else {}
