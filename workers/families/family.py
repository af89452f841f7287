"""The contract of a model family: what finished models compute, what a fit computes, and what some families can do.

A family is a `Family`, whose instance has the options of a fit. The driver calls its methods for global states, and
tasks beside the shards the others, with which it travels. `collapsium.pipeline.models.registry` maps names to classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from collapsium.storage.printable import ShortRepr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collapsium.storage.corpus.labels import LabelTable
    from collapsium.storage.corpus.shard import Documents, Shard
    from collapsium.storage.corpus.vectors import Vectors
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.arrays.random_streams import Stream
    from collapsium.workers.arrays.state import Arrays, GlobalState, LocalState, Rows
    from collapsium.workers.families.document_entries import DocumentEntries, WordWeights
    from collapsium.workers.kernels.jit import AnyKernel
    from collapsium.workers.kernels.prediction import DirichletTopics

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
        A pair of the first local state, whose size may differ from those that follow; else 0.
    carried : float
        Responsibilities that a sweep carries over to newly selected topics, besides all this.
    selected : float
        A word of a shard while topics are selected for local states in memory, besides all this.
    proportions : float
        A document's proportions of all topics.
    change_share : float or None
        Share of the bytes of a machine's changes that travels once they are encoded; None where changes are no whole
        numbers, so that machines do not exchange them.
    sum_share : float
        The same share of the sums of all machines.
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
    change_share: float | None = None
    sum_share: float = 1.0


def weighed_footprint(footprint: Footprint, pairs: int, weights: object) -> Footprint:
    """Return a footprint with the weights of words, if any: 8 bytes per word and, during a sweep, 12 per pair."""
    if weights is None:
        return footprint
    rows, shown, swept = (size + 8.0 for size in (footprint.rows, footprint.shown, footprint.swept))
    return replace(footprint, rows=rows, shown=shown, swept=swept, chunk=footprint.chunk + 12.0 * pairs)


FILE_START, RANDOM_START, QUICK_CLUSTERS_START = "file", "random", "quick-clusters"
COMPUTED_STARTS: tuple[str, ...] = (QUICK_CLUSTERS_START, "clusters", "documents", "tree")

LearnedT = TypeVar("LearnedT", bound=str)
OptionsT = TypeVar("OptionsT", bound="FamilyOptions")
GlobalStateT = TypeVar("GlobalStateT", bound="GlobalState")
RowsT = TypeVar("RowsT", bound="Rows")
LocalT = TypeVar("LocalT", bound="LocalState")

# A shard of documents or of vectors; the methods of a family declare which of the two they take
AnyShard: TypeAlias = Any


@dataclass(frozen=True)
class SeedTable:
    """Pseudo-counts of seeded topics."""

    # Topic and word of each; int64 (seeds,)
    topics: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]
    counts: npt.NDArray[np.float64]  # The pseudo-counts s_kw; float64 (seeds,)


@dataclass(frozen=True)
class DesignTable:
    """Design that the documents' priors follow, and the sizes of its columns over the corpus."""

    packed: npt.NDArray[np.uint8]  # The design as JSON; see `collapsium.workers.design.ModelDesign`
    terms: npt.NDArray[np.int64]  # Term of each column; int64 (columns,)
    reach: Vector  # Largest sum of absolute values over the columns of each term; float64 (terms,)
    # Field of each level of fields of many, which have no columns; int64 (levels,)
    level_field: npt.NDArray[np.int64]


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
    design : DesignTable or None
        Design that the documents' priors follow; None where all documents have the same prior.
    most_tokens : int
        Tokens of the most frequent word; 0 where they are not known.
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
    design: DesignTable | None = None
    most_tokens: int = 0


@dataclass(frozen=True, repr=False)
class Description(ShortRepr):
    """Shares and top words of topics or nodes, of one block of the vocabulary.

    Attributes
    ----------
    ids : numpy.ndarray of int, shape (topics,)
        Permanent ids in the order of display. Nodes of a tree go depth-first, siblings by their shares, which include
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


def one_alpha(learn: tuple[LearnedT, ...]) -> tuple[LearnedT, ...]:
    """Refuse to learn both one value of alpha and a value for each topic."""
    if {"alpha", "asymmetric-alpha"} <= set(learn):
        raise ValueError("name either alpha or asymmetric-alpha")
    return learn


class FamilyOptions(BaseModel):
    """Base of the families' options: frozen, without further names, each with a description.

    Some names have one meaning. ``topics`` is the number of topics or its upper bound, ``init_topics`` the initial
    number of a family that infers it, at most ``max_start_topics``. ``labels`` are the fields of labels that are used,
    by default all, and ``covariates`` the fields of numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)
    max_start_topics: ClassVar[int | None] = None
    drawn: ClassVar[tuple[str, ...]] = ()  # Options that only `simulate` uses

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
        """Options without effect under these options, which new fits refuse, with the condition of each."""
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


class Predicts(ABC, Generic[GlobalStateT, RowsT, LocalT]):
    """Computation of finished models on a shard of documents or on a block of the vocabulary.

    Methods do not change arguments in place, because a task may run twice.

    Attributes
    ----------
    global_state_type, rows_type, local_type : type
        Classes of the global state, of the words' rows, and of the local state of a shard.
    documents_type : type
        Class of the part of the local state that a finished model saves; a base class of `local_type`.
    uses_labels : bool
        Whether shards come with ``labels``, the categories and numbers of their documents. The global state then has
        the training corpus's table of labels, `LabelTable.packed`, as ``label_table``. `fold_in` uses the labels too:
        proportions of documents without words follow from their labels alone.
    uses_segments : bool
        Whether shards and held-out pairs come with ``segments``. The held-out pairs of a document have as many segments
        as the document.
    folds_in_at_a_point : bool
        Whether documents without words are folded in to one point of the prior, such as the path of largest
        probability, and not to the prior's expectation.
    """

    global_state_type: ClassVar[type[GlobalState]]
    rows_type: ClassVar[type[Rows]]
    local_type: ClassVar[type[LocalState]]
    documents_type: ClassVar[type[LocalState]]
    uses_labels: ClassVar[bool] = False
    uses_segments: ClassVar[bool] = False
    folds_in_at_a_point: ClassVar[bool] = False

    def design(self, global_state: GlobalStateT) -> npt.NDArray[np.uint8] | None:
        """Return the packed design that the documents' priors follow, with whose rows shards come; None without one."""
        return None

    def design_coefficients(self, global_state: GlobalStateT) -> Vector | None:
        """Return the coefficients of the documents' priors, shape (columns and levels, topics); None without any."""
        return None

    def load_local(self, arrays: Arrays) -> LocalT:
        """Return the local state in a checkpoint or in spill files; a family may leave its arrays on disk."""
        return cast(LocalT, self.local_type.from_arrays(arrays))

    def documents(self, local: LocalT) -> LocalState:
        """Return the part of a local state that a finished model saves."""
        return self.documents_type.from_arrays(local.to_arrays())

    @abstractmethod
    def fold_in_kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that `fold_in` and `predict` call."""

    @abstractmethod
    def blank_rows(self, low: int, high: int, global_state: GlobalStateT) -> RowsT:
        """Return a finished model's rows of the words `low` to `high` - 1, which were added to its vocabulary later."""

    @abstractmethod
    def fold_in(self, shard: AnyShard, rows: RowsT, global_state: GlobalStateT, stream: Stream) -> LocalState:
        """Fit the local state of unseen documents with the rest of the model held fixed."""

    @abstractmethod
    def predict(self, heldout: AnyShard, local: LocalT, rows: RowsT, global_state: GlobalStateT) -> Arrays:
        """Return predictive probabilities of held-out pairs, or reconstruction errors of vectors.

        Parameters
        ----------
        heldout : Shard or VectorShard
            Held-out pairs of the documents of `local`, or the vectors of `local`.
        local : LocalState
            As returned by a sweep or by `fold_in`.
        rows : Rows
            A row for each of ``heldout.words``, with the fields declared by `block_only`.
        global_state : GlobalState
            Global state of the model.

        Returns
        -------
        mapping of str to numpy.ndarray
            For documents ``probability``, float64, shape (pairs,). For vectors ``error``, float64, shape (vectors,):
            the squared distance of each vector from its reconstruction.
        """

    @abstractmethod
    def probabilities(self, rows: RowsT, global_state: GlobalStateT) -> Arrays:
        """Return the probability of each word under each topic, as used in prediction.

        Parameters
        ----------
        rows : Rows
            Rows of the words.
        global_state : GlobalState
            Global state of the model.

        Returns
        -------
        mapping of str to numpy.ndarray
            ``word_topic``, float64, shape (words, topics). Trees return ``topic_parent`` too, int64: the column of each
            column's parent, -1 for the root.
        """

    @abstractmethod
    def infer(self, local: Any, global_state: GlobalStateT) -> Arrays:
        """Return the topic proportions of documents, and further estimates for them.

        Parameters
        ----------
        local : LocalState
            Local state of the documents, or its part that a finished model saves (`documents_type`).
        global_state : GlobalState
            Global state of the model.

        Returns
        -------
        mapping of str to numpy.ndarray
            ``document_topic``, float, shape (documents, topics), columns by permanent ids. A family may add arrays
            ``document_x``, shape (documents, n), of integers, such as the nodes' ids ``document_path``, or of floats,
            such as ``document_factors``; `collapsium infer` writes each into a column ``x`` of lists. A family that
            uses segments adds ``segment_topic``, shape (segments, topics), and ``segments``, int64, the number of
            segments of each document.
        """

    def weighed(self, shard: Shard, rows: RowsT) -> Shard:
        """Return a shard with the weights of its words, if they have any."""
        return shard

    def word_tokens(self, rows: RowsT) -> npt.NDArray[np.float64] | None:
        """Return the expected tokens of each word, whose sum is the corpus's; None if the model has no such counts."""
        return None

    @abstractmethod
    def document_lengths(self, local: LocalT) -> npt.NDArray[np.float64]:
        """Return the expected tokens of each document, which equal its length."""

    @abstractmethod
    def describe(self, block: RowsT, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics by the `count` most probable words of a block."""

    def metrics(self, global_state: GlobalStateT) -> dict[str, float]:
        """Return the hyperparameters that are reported of each iteration."""
        return {}

    def remark(self, global_state: GlobalStateT) -> str | None:
        """Return what a reader of the model has to know about its topics; None for nothing."""
        return None

    def word_concentration(self, global_state: GlobalStateT) -> float | None:
        """Return B = sum_w b_w, the concentration of topics over words; None where the family has none."""
        return None

    def label_table(self, global_state: GlobalStateT) -> LabelTable | None:
        """Return the labels and covariates of the training corpus; None if the family uses none."""
        return None

    def uncounted_tokens(self, global_state: GlobalStateT) -> float:
        """Return the number of tokens that do not count yet; until it is 0, a run does not stop early."""
        return 0.0


class Family(Predicts[GlobalStateT, RowsT, LocalT], Generic[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family of models, which can be fitted.

    Parameters
    ----------
    options : FamilyOptions
        The options of a fit; tasks get them without what is large (`FamilyOptions.for_tasks`).

    Attributes
    ----------
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

    Options: ClassVar[type[FamilyOptions]]
    corpus_kind: ClassVar[str] = "documents"
    schedules: ClassVar[tuple[str, ...]] = ("batch",)
    is_sampler: ClassVar[bool] = False
    requires_labels: ClassVar[bool] = False
    uses_linear_algebra: ClassVar[bool] = False
    starts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    def __reduce__(self) -> tuple[type[Self], tuple[OptionsT]]:
        return type(self), (self.options.for_tasks(),)

    @classmethod
    def with_options(cls, options: OptionsT) -> Family[OptionsT, Any, Any, Any]:
        """Return the family with options, which may select a subclass."""
        return cls(options)

    def usual_start(self) -> str:
        """Return the start of fits that name none."""
        return RANDOM_START

    def keeps_start(self) -> bool:
        """Return true if a start may stay in the documents' priors."""
        return False

    @abstractmethod
    def initialise(self, summary: Summary, stream: Stream) -> GlobalStateT:
        """Return the global state before any document was swept."""

    @abstractmethod
    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory that the state of a fit takes."""

    @abstractmethod
    def update(self, global_state: GlobalStateT, delta: Delta, stream: Stream) -> GlobalStateT:
        """Return the next global state, from the sums of a round of sweeps."""

    def objective(self, global_state: GlobalStateT, delta: Delta) -> dict[str, float]:
        """Return named metrics of the state just swept, before `update`; ``objective`` is the stopping rule's."""
        return {}

    def moved_tokens(self, delta: Delta) -> float:
        """Return the number of swept tokens that moved between topics."""
        return delta.number("moved")

    def needs_another_round(self, global_state: GlobalStateT) -> bool:
        """Return true if the iteration continues with one more sweep."""
        return False

    def cannot_change(self, global_state: GlobalStateT) -> bool:
        """Return true if a run stops after the first sweep in which no token moved."""
        return False

    def fold_in_kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that `fold_in` and `predict` call: by default the kernels of a fit."""
        return self.kernels(global_state)

    @abstractmethod
    def kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration, to be compiled before the first."""

    @abstractmethod
    def initial_rows(self, words: int, global_state: GlobalStateT) -> RowsT:
        """Return the rows of `words` words before the first document is counted."""

    def first_rows(self, low: int, high: int, global_state: GlobalStateT) -> RowsT:
        """Return `initial_rows` of the words `low` to `high` - 1; families whose words differ at first override it."""
        return self.initial_rows(high - low, global_state)

    @abstractmethod
    def start(
        self, shard: AnyShard, rows: RowsT, global_state: GlobalStateT, stream: Stream, warm: Arrays | None = None
    ) -> tuple[LocalT, Delta]:
        """Return a shard's first local state, and its counts as changes from zero.

        Parameters
        ----------
        shard : Shard or VectorShard
            The documents, or the vectors.
        rows : Rows
            Initial rows of ``shard.words``.
        global_state : GlobalState
            As returned by `initialise`.
        stream : Stream
            Random stream of the shard.
        warm : Arrays, optional
            Arrays of another run, of any family, for a warm start: its proportions ``document_topic``, float32, shape
            (documents, topics of that run); its probabilities ``word_topic``, float32, shape (words of the shard,
            topics of that run); and, if that run has a tree, ``topic_parent``, int64, the parent of each topic, -1 for
            the root. The run has at most as many topics as the option ``topics``. Responsibilities are then
            q_dwk ~ theta_dk phi_kw, and sweeps must not treat the local state as one of a cold start.

        Returns
        -------
        local : LocalState
            The local state.
        delta : Delta
            Its counts.
        """

    @abstractmethod
    def sweep(
        self, shard: AnyShard, local: LocalT, rows: RowsT, global_state: GlobalStateT, stream: Stream
    ) -> tuple[LocalT, Delta]:
        """Return the new local state and the delta of one sweep; `rows` has a row for each of ``shard.words``."""

    def advance(self, rows: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, GlobalStateT]:
        """Return what another sweep of a shard starts from before its delta is reduced: by default the same."""
        return rows, global_state

    @abstractmethod
    def fold(self, block: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, Delta]:
        """Return a block's rows after a delta, whose word ids count from its first word, and sums for `update`."""

    def finished_rows(self, block: RowsT, global_state: GlobalStateT) -> RowsT:
        """Return a block's rows as a finished model saves them."""
        return block

    def blank_rows(self, low: int, high: int, global_state: GlobalStateT) -> RowsT:
        """Return a finished model's rows of the words `low` to `high` - 1, which were added to its vocabulary later."""
        return self.finished_rows(self.first_rows(low, high, global_state), global_state)


class CarriesHyperparameters(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family whose fits can continue from the hyperparameters of another run."""

    @abstractmethod
    def carry(
        self, global_state: GlobalStateT, known: GlobalStateT, before: OptionsT
    ) -> tuple[GlobalStateT, int] | None:
        """Return the global state of a fit that continues another run of the family.

        Parameters
        ----------
        global_state : GlobalState
            The result of `initialise`.
        known : GlobalState
            The last global state of the other run.
        before : FamilyOptions
            The options of the other run.

        Returns
        -------
        global_state : GlobalState
            The global state, with the other run's values of hyperparameters that the options learn. Unchanged shards
            then go on from their local states; other shards start with each topic in its column.
        columns : int
            Number of columns of topics. The result is None instead where local states are not compatible: all shards
            then start from proportions and topics.
        """


class Resumable(CarriesHyperparameters[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family whose fits can also continue from the local states that another run saved of the same shards."""

    @abstractmethod
    def continue_from(
        self, shard: AnyShard, saved: Arrays, rows: RowsT, global_state: GlobalStateT
    ) -> tuple[LocalT, Delta]:
        """Return the first local state and delta of a shard that another run of the family has swept."""


class Growing(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family whose fits can begin on a sample of the documents; the others are empty until they join."""

    @abstractmethod
    def can_grow(self) -> bool:
        """Return true if fits with these options can."""

    @abstractmethod
    def join(
        self,
        shard: AnyShard,
        local: LocalT,
        joining: AnyShard,
        rows: RowsT,
        global_state: GlobalStateT,
        stream: Stream,
    ) -> tuple[LocalT, Delta]:
        """Return the new local state and the delta of one sweep, before which further documents join."""


class IntegerChange(NamedTuple):
    """An array of changes of rows that are whole numbers of steps."""

    dims: tuple[str, ...]  # Its dims, the first of which is `word`
    shape: tuple[int, ...]  # Its sizes beyond the words
    dtype: str  # Number type that holds the steps of all tokens of the most frequent word
    steps: float = 1.0  # Steps of one; deltas have other numbers than steps where it is not 1


class Exchanges(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family whose rows may change by whole numbers only, which hosts can add in any order."""

    @abstractmethod
    def integer_changes(self, global_state: GlobalStateT) -> Mapping[str, IntegerChange] | None:
        """Return the arrays by word of a sweep's delta; None if one of them is not of whole numbers."""

    @abstractmethod
    def fold(
        self, block: RowsT, delta: Delta, global_state: GlobalStateT, bands: slice | None = None
    ) -> tuple[RowsT, Delta]:
        """Return a block's rows after a delta, and sums over some bands of its words, by default over all.

        The sums over disjoint bands add up to the sums over the block.
        """


class Stochastic(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family that can be fitted by minibatches of shards, without local states."""

    @abstractmethod
    def corpus_tokens(self, global_state: GlobalStateT) -> float:
        """Return the tokens of the whole corpus."""

    @abstractmethod
    def is_stochastic(self, global_state: GlobalStateT) -> bool:
        """Return true if a model was fitted by minibatches."""

    @abstractmethod
    def global_state_for_steps(self, global_state: GlobalStateT, summary: Summary, minibatches: int) -> GlobalStateT:
        """Return the global state of a fitted model for further steps on minibatches.

        Parameters
        ----------
        global_state : GlobalState
            The global state of the model.
        summary : Summary
            Sizes of the corpus of the minibatches.
        minibatches : int
            Minibatches that the training corpus of the model stands for.

        Returns
        -------
        GlobalState
            The state.
        """

    @abstractmethod
    def step(self, shard: AnyShard, rows: RowsT, global_state: GlobalStateT, stream: Stream) -> Delta:
        """Return the stochastic step of a shard."""

    @abstractmethod
    def blend(self, block: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, Delta]:
        """Return a block's rows after a minibatch's steps, and the sums over them that `update` needs."""

    @abstractmethod
    def rows_for_steps(self, rows: RowsT, factor: float) -> RowsT:
        """Return the rows of a batch model as the start of stochastic steps, scaled by a ratio of corpus sizes."""


class Editable(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family whose topics can be merged in finished models."""

    @abstractmethod
    def uneditable(self, global_state: GlobalStateT) -> str | None:
        """Return the reason for which the topics of a model cannot be edited; None if they can."""

    @abstractmethod
    def edited(self, global_state: GlobalStateT, mixing: Vector, tokens: Vector, plain: Vector | None) -> GlobalStateT:
        """Return the global state after an edit of topics."""

    @abstractmethod
    def topic_prior(self, global_state: GlobalStateT) -> npt.NDArray[np.float64]:
        """Return the Dirichlet parameters a_k of a document's topics in prediction, shape (topics,)."""

    @abstractmethod
    def row_counts(self, rows: RowsT) -> npt.NDArray[np.floating]:
        """Return E[n_kw] of a finished model's rows, shape (words, topics)."""

    @abstractmethod
    def with_row_counts(self, rows: RowsT, counts: npt.NDArray[np.float64]) -> RowsT:
        """Return a finished model's rows with other counts, shape (words, topics)."""

    @abstractmethod
    def plain_tokens(self, rows: RowsT, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """Return the tokens of topics by counts E[n_kw] of the rows' words without their weights; None if all are 1."""

    @abstractmethod
    def entries(self, local: LocalT) -> DocumentEntries:
        """Return E[n_dk] of the documents of a finished model."""

    @abstractmethod
    def with_entries(self, local: LocalT, entries: DocumentEntries, topics: int) -> LocalT:
        """Return the documents of a finished model with other counts and number of topics."""


class IntegratesProportions(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family whose documents share a Dirichlet prior over flat topics, which their likelihoods integrate out."""

    @abstractmethod
    def dirichlet_topics(self, rows: RowsT, global_state: GlobalStateT) -> DirichletTopics:
        """Return the topics of the words of `rows`, and the Dirichlet prior of their proportions in a document.

        Parameters
        ----------
        rows : Rows
            Rows of the words.
        global_state : GlobalState
            Global state of the model.

        Returns
        -------
        DirichletTopics
            Topics of positive prior; those that do not exist yet are together the last one.
        """


class Simulates(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family that can simulate documents or vectors."""

    @abstractmethod
    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, GlobalStateT]:
        """Draw a model: its topics as in `families.generative`, or its rows; and its global state."""

    @abstractmethod
    def simulate(
        self, topics: Arrays, global_state: GlobalStateT, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents | Vectors, npt.NDArray[np.float64]]:
        """Draw documents, or vectors, without ids, and their proportions."""


class WeighsLabels(Family[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family whose labels scale the proportions of topics."""

    @abstractmethod
    def label_weights(self, global_state: GlobalStateT) -> npt.NDArray[np.float64]:
        """Return the log of the factor by which each label scales each topic."""


AnyPredicts = Predicts[Any, Any, Any]
AnyFamily = Family[Any, Any, Any, Any]
