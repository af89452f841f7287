"""The driver's half of a model family.

A family has one class here, a `Family`, and one for the shards, a `collapsium.workers.families.base.ShardModel`, which
it names. `collapsium.pipeline.models.registry` maps names to classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from collapsium.storage.printable import ShortRepr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collapsium.storage.corpus.label_index import LabelTable
    from collapsium.storage.corpus.shard import Documents
    from collapsium.storage.corpus.vectors import Vectors
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.arrays.random_streams import Stream
    from collapsium.workers.arrays.state import Arrays, GlobalState, Rows
    from collapsium.workers.families.base import AnyShardModel
    from collapsium.workers.families.plain_tokens import WordWeights

    Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Footprint:
    """Bytes that a family's state takes, from which a fit is planned.

    Attributes
    ----------
    rows, shown : float
        The rows of a word of the vocabulary in a block, and the part of them that sweeps see.
    swept : float
        A word of a shard during a sweep, besides its rows and the delta.
    delta : float
        A word of a shard in a delta.
    pair, document : float
        A pair and a document of a local state.
    chunk : float
        The chunk of documents that a sweep of a spilled local state holds in memory, besides all this.
    first_pair : float
        A pair of the first local state, where those that follow are of another size.
    carried : float
        Responsibilities that a sweep carries over to newly selected topics, besides all this.
    selected : float
        A word of a shard while topics are selected for local states in memory, besides all this.
    proportions : float
        A document's proportions of all topics.
    """

    rows: float
    shown: float
    swept: float
    delta: float
    pair: float
    document: float
    chunk: float
    first_pair: float = 0.0
    carried: float = 0.0
    selected: float = 0.0
    proportions: float = 0.0


def weighed_footprint(footprint: Footprint, pairs: int, weights: object) -> Footprint:
    """Return a footprint with the weights of words, if there are any: 8 bytes a word and, during a sweep, 12 a pair."""
    if weights is None:
        return footprint
    rows, shown, swept = (size + 8.0 for size in (footprint.rows, footprint.shown, footprint.swept))
    return replace(footprint, rows=rows, shown=shown, swept=swept, chunk=footprint.chunk + 12.0 * pairs)


FILE_START, RANDOM_START, QUICK_CLUSTERS_START = "file", "random", "quick-clusters"
COMPUTED_STARTS: tuple[str, ...] = (QUICK_CLUSTERS_START, "clusters", "documents", "tree")

OptionsT = TypeVar("OptionsT", bound="FamilyOptions")
GlobalStateT = TypeVar("GlobalStateT", bound="GlobalState")
RowsT = TypeVar("RowsT", bound="Rows")


@dataclass(frozen=True)
class SeedTable:
    """Pseudo-counts of seeded topics."""

    # Topic and word of each; int64 (seeds,)
    topics: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]
    counts: npt.NDArray[np.float64]  # The pseudo-counts s_kw; float64 (seeds,)


@dataclass(frozen=True)
class Summary:
    """Sizes of the corpus and plans of the fit, from which a family begins.

    Attributes
    ----------
    documents, words, tokens, pairs, shards : int
        Sizes of the corpus; `words` is the vocabulary's.
    stochastic : bool
        Whether shards are swept in minibatches.
    lengths : numpy.ndarray of int64, shape (documents of a shard,), or None
        Pairs of each of some documents, for memory that is not linear in them; None where no shard was read.
    iterations : int
        Planned sweeps; 0 where they are not known.
    warm, start : int
        Topics of the run of a warm start, and of the proportions that a new fit's documents begin with; 0 without.
    labels : LabelTable or None
        Labels and covariates of the training corpus, of the fields that the options name; None if the family uses none.
    growing : int
        Iterations that sweep samples of the documents; 0 where all sweep all documents.
    seeds : SeedTable or None
        Pseudo-counts of seeded topics; None without seeds.
    weights : WordWeights or None
        Weights of words; None where all tokens count as one.
    """

    documents: int
    words: int
    tokens: int
    pairs: int = 0
    shards: int = 1
    stochastic: bool = False
    lengths: npt.NDArray[np.int64] | None = None
    iterations: int = 0
    warm: int = 0
    labels: LabelTable | None = None
    growing: int = 0
    seeds: SeedTable | None = None
    start: int = 0
    weights: WordWeights | None = None


@dataclass(frozen=True, repr=False)
class Description(ShortRepr):
    """Shares and top words of topics or nodes, of one block of the vocabulary.

    Attributes
    ----------
    ids : numpy.ndarray of int, shape (topics,)
        Permanent ids in the order of display. Nodes of a tree go depth-first, siblings by their shares with those of
        the nodes below, the largest first.
    share : numpy.ndarray of float64, shape (topics,)
        Share of the tokens; of a node without the nodes below it, so that the shares of a tree add up to one.
    words : numpy.ndarray of int, shape (topics, count)
        Most probable words of the block in each topic, as positions in the block, descending.
    probability : numpy.ndarray of float64, shape (topics, count)
        Their probabilities.
    parent : numpy.ndarray of int, shape (topics,), or None
        The id of each node's parent, -1 for the root; None where topics are flat.
    signed : bool
        Whether `words` are columns of vectors and `probability` their loadings, which may be negative: `words` then
        descend by magnitude.
    titles : tuple of (str or None), or None
        Titles of the topics, if the family or the model has them.
    """

    ids: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]
    words: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    parent: npt.NDArray[np.int64] | None = None
    signed: bool = False
    titles: tuple[str | None, ...] | None = None


class FamilyOptions(BaseModel):
    """Base of the families' options: frozen, without further names, each with a description.

    Some names have one meaning. ``topics`` is the number of topics or its upper bound, ``init_topics`` the initial
    number of a family that infers it, at most ``max_start_topics``. ``labels`` are the fields of labels that are used,
    by default all, and ``covariates`` the fields of numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)
    max_start_topics: ClassVar[int | None] = None

    @property
    def takes_segments(self) -> bool:
        """True if a fit with these options uses segments, of a family that can."""
        return True

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Names of the first topics, if the options name any."""
        return ()

    @property
    def takes_labels(self) -> bool:
        """True if a fit with these options uses labels, of a family that can."""
        return True

    @property
    def covariates_need(self) -> str:
        """Options that would make a fit use the covariates of a corpus; empty if it does, or if the family cannot."""
        return ""

    @property
    def unused(self) -> Mapping[str, str]:
        """Options that these leave without effect, and for each what it applies to; new fits refuse them."""
        return {}

    def for_tasks(self) -> Self:
        """Return the options that travel with tasks: without what is large, and is part of the state."""
        return self

    @field_validator("*", mode="before")
    @classmethod
    def _as_tuple(cls, value: object, info: ValidationInfo) -> object:
        """Accept lists, names with commas between, or a single value for a tuple, as TOML has no tuples."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        kinds = (annotation, *get_args(annotation))
        if any(get_origin(kind) is tuple for kind in kinds) and isinstance(value, (str, int, float, list)):
            if isinstance(value, str):
                return tuple(value.split(","))
            return tuple(value) if isinstance(value, list) else (value,)
        return value


class Family(ABC, Generic[OptionsT, GlobalStateT, RowsT]):
    """The driver's half of a family; its states are those of the shard model.

    Attributes
    ----------
    shard_model : type of ShardModel
        The half for the shards.
    Options : type of FamilyOptions
        The options; ``Options.model_config["title"]`` describes the family in a line.
    corpus_kind : str
        Contents of its corpora, ``documents`` or ``vectors``.
    schedules : tuple of str
        The schedules that it can be fitted by.
    is_sampler : bool
        Whether its states are samples, whose predictions are better averaged.
    requires_labels : bool
        Whether a corpus without labels is refused.
    uses_linear_algebra : bool
        Whether it calls NumPy's linear algebra, whose last places depend on the processor.
    starts : tuple of str
        The starts that a fit may have instead of a random one: `FILE_START`, and some of `COMPUTED_STARTS`.
    """

    shard_model: ClassVar[type[AnyShardModel]]
    Options: ClassVar[type[FamilyOptions]]
    corpus_kind: ClassVar[str] = "documents"
    schedules: ClassVar[tuple[str, ...]] = ("batch",)
    is_sampler: ClassVar[bool] = False
    requires_labels: ClassVar[bool] = False
    uses_linear_algebra: ClassVar[bool] = False
    starts: ClassVar[tuple[str, ...]] = ()

    def usual_start(self, options: OptionsT) -> str:
        """Return the start of fits that name none."""
        return RANDOM_START

    def keeps_start(self, options: OptionsT) -> bool:
        """Return true if a start may stay in the documents' priors."""
        return False

    def make_shard_model(self, options: OptionsT) -> AnyShardModel:
        """Return the half for the shards with its options; options may select another class than `shard_model`."""
        return self.shard_model(options.for_tasks())

    @abstractmethod
    def initialise(self, summary: Summary, options: OptionsT, stream: Stream) -> GlobalStateT:
        """Return the global state before any document was swept."""

    @abstractmethod
    def footprint(self, summary: Summary, options: OptionsT) -> Footprint:
        """Return the memory that the state of a fit takes."""

    @abstractmethod
    def update(self, global_state: GlobalStateT, delta: Delta, options: OptionsT, stream: Stream) -> GlobalStateT:
        """Return the next global state, from the sums of a round of sweeps."""

    def objective(self, global_state: GlobalStateT, delta: Delta) -> dict[str, float]:
        """Return named figures of the state just swept, before `update`; ``objective`` is the stopping rule's."""
        return {}

    def figures(self, global_state: GlobalStateT) -> dict[str, float]:
        """Return the hyperparameters that are reported of each iteration."""
        return {}

    def remark(self, global_state: GlobalStateT) -> str | None:
        """Return what a reader of the model has to know about its topics; None for nothing."""
        return None

    @abstractmethod
    def describe(self, block: RowsT, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics by the `count` most probable words of a block."""

    def moved_tokens(self, delta: Delta) -> float:
        """Return the number of swept tokens that moved between topics."""
        return delta.number("moved")

    def needs_another_round(self, global_state: GlobalStateT) -> bool:
        """Return true if the iteration goes on with one more sweep."""
        return False

    def uncounted_tokens(self, global_state: GlobalStateT) -> float:
        """Return the number of tokens that do not count yet; until it is 0, a run does not stop early."""
        return 0.0

    def can_grow(self, options: OptionsT) -> bool:
        """Return true if a fit can begin on a sample of the documents; its shard model is a `Growing` one then."""
        return False

    def cannot_change(self, global_state: GlobalStateT) -> bool:
        """Return true if a run stops after the first sweep in which no token moved."""
        return False

    def word_concentration(self, global_state: GlobalStateT) -> float | None:
        """Return B = sum_w b_w, the concentration of topics over words; None where the family has none."""
        return None

    def label_table(self, global_state: GlobalStateT) -> LabelTable | None:
        """Return the labels and covariates of the training corpus; None if the family uses none."""
        return None


class Resumable(Family[OptionsT, GlobalStateT, RowsT]):
    """A family whose fits can go on from another run; from its local states, if the shard model is resumable too."""

    @abstractmethod
    def carry(
        self, global_state: GlobalStateT, known: GlobalStateT, options: OptionsT, before: OptionsT
    ) -> tuple[GlobalStateT, int] | None:
        """Return the global state of a fit that goes on from another run of the family.

        Parameters
        ----------
        global_state : GlobalState
            The result of `initialise`.
        known : GlobalState
            The last global state of the other run.
        options, before : FamilyOptions
            The options of the fit, and of the other run.

        Returns
        -------
        global_state : GlobalState
            The global state, with the other run's values of hyperparameters that `options` learn. Unchanged shards then
            go on from their local states; other shards start with each topic in its column.
        columns : int
            Number of columns of topics. The result is None instead where local states are not compatible: all shards
            then start from proportions and topics.
        """


class Editable(Family[OptionsT, GlobalStateT, RowsT]):
    """A family whose topics can be merged, deleted and split; its shard model is editable too."""

    @abstractmethod
    def uneditable(self, global_state: GlobalStateT) -> str | None:
        """Return the reason for which the topics of a model cannot be edited; None if they can."""

    @abstractmethod
    def edited(self, global_state: GlobalStateT, mixing: Vector, tokens: Vector, plain: Vector | None) -> GlobalStateT:
        """Return the global state after an edit of topics."""


class Stochastic(Family[OptionsT, GlobalStateT, RowsT]):
    """A family that can be fitted by minibatches of shards; its shard model is stochastic too."""

    @abstractmethod
    def corpus_tokens(self, global_state: GlobalStateT) -> float:
        """Return the tokens of the whole corpus."""

    @abstractmethod
    def is_stochastic(self, global_state: GlobalStateT) -> bool:
        """Return true if a model was fitted by minibatches."""

    @abstractmethod
    def global_state_for_steps(
        self, global_state: GlobalStateT, summary: Summary, options: OptionsT, minibatches: int
    ) -> GlobalStateT:
        """Return the global state of a fitted model for further steps on minibatches.

        Parameters
        ----------
        global_state : GlobalState
            The global state of the model.
        summary : Summary
            Sizes of the corpus of the minibatches.
        options : FamilyOptions
            The options.
        minibatches : int
            Minibatches that the training corpus of the model stands for.

        Returns
        -------
        GlobalState
            The state.
        """


class Simulates(Family[OptionsT, GlobalStateT, RowsT]):
    """A family that can simulate documents or vectors."""

    @abstractmethod
    def draw_model(self, summary: Summary, options: OptionsT, stream: Stream) -> tuple[Arrays, GlobalStateT]:
        """Draw a model: its topics as in `families.generative`, or its rows; and its global state."""

    @abstractmethod
    def simulate(
        self, topics: Arrays, global_state: GlobalStateT, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents | Vectors, npt.NDArray[np.float64]]:
        """Draw documents, or vectors, without ids, and their proportions."""


class WeighsLabels(Family[OptionsT, GlobalStateT, RowsT]):
    """A family whose labels scale the proportions of topics."""

    @abstractmethod
    def label_weights(self, global_state: GlobalStateT) -> npt.NDArray[np.float64]:
        """Return the log of the factor by which each label scales each topic."""


AnyFamily = Family[Any, Any, Any]
