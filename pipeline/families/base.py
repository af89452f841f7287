"""The half of a model family on the driver.

A family has one class here, a `Family`, and one beside the shards, a `collapsium.workers.families.base.ShardModel`,
which it names. `collapsium.pipeline.families.registry` maps names to classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from collapsium.storage.short_repr import ShortRepr

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

OptionsT = TypeVar("OptionsT", bound="FamilyOptions")
GlobalStateT = TypeVar("GlobalStateT", bound="GlobalState")
RowsT = TypeVar("RowsT", bound="Rows")


@dataclass(frozen=True)
class Summary:
    """What a family knows of the corpus when it begins.

    Attributes
    ----------
    documents, words, tokens, pairs, shards : int
        Sizes of the corpus; `words` is the vocabulary's.
    stochastic : bool
        Whether shards are swept in minibatches.
    lengths : numpy.ndarray of int64, shape (documents of a shard,), or None
        Pairs of each of some documents, where they have been looked at: what a state takes may grow unevenly with them.
    iterations : int
        Sweeps that are planned; 0 where that is not known.
    warm : int
        Topics of another run that it begins from, which have parted already; 0 for none.
    labels : LabelTable or None
        The labels and numbers of the training corpus that the family was asked to take, if it takes any at all.
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
    """

    rows: float
    shown: float
    swept: float
    delta: float
    pair: float
    document: float
    chunk: float


@dataclass(frozen=True, repr=False)
class Description(ShortRepr):
    """Topics or nodes as people read them, of one block of the vocabulary.

    Attributes
    ----------
    ids : numpy.ndarray of int, shape (topics,)
        Permanent ids in the order to show. Nodes of a tree go depth-first, siblings by what lies at and below them, the
        largest first.
    share : numpy.ndarray of float64, shape (topics,)
        Each one's share of the tokens; a node's own, without the nodes below it, so that a tree's shares add up to one.
    words : numpy.ndarray of int, shape (topics, count)
        The block's most probable words of each, as positions in the block, falling.
    probability : numpy.ndarray of float64, shape (topics, count)
        Their probabilities.
    parent : numpy.ndarray of int, shape (topics,), or None
        The id of each node's parent, -1 for the root; None where topics are flat.
    signed : bool
        Whether `words` are columns of vectors and `probability` their loadings, which may be negative: `words` then
        fall by magnitude.
    titles : tuple of str or None
        What each is called, where the family knows; else None.
    """

    ids: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]
    words: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    parent: npt.NDArray[np.int64] | None = None
    signed: bool = False
    titles: tuple[str, ...] | None = None


class FamilyOptions(BaseModel):
    """Base of the families' options: frozen, no other names, and a description for each.

    A family whose number of topics, or the most of it, is given names that option ``topics``; one that finds their
    number names what it starts from ``start_topics``. Warm starts and comparisons go by these names. One that
    takes labels names the fields that it takes ``labels``, none for all, and those of numbers ``covariates``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    @property
    def takes_segments(self) -> bool:
        """Whether, of a family that takes segments, a fit with these options does."""
        return True

    @property
    def takes_labels(self) -> bool:
        """Whether, of a family that takes labels, a fit with these options does."""
        return True

    @field_validator("*", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any, info: ValidationInfo) -> Any:
        """Take lists, names with commas between, or a single one, where a tuple is asked for: TOML has no tuples."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if get_origin(annotation) is tuple and isinstance(value, (str, int, float, list)):
            if isinstance(value, str):
                return tuple(value.split(","))
            return tuple(value) if isinstance(value, list) else (value,)
        return value


class Family(ABC, Generic[OptionsT, GlobalStateT, RowsT]):
    """What a family does on the driver; the states are those of its shard model.

    Attributes
    ----------
    shard_model : type of ShardModel
        The half beside the shards.
    Options : type of FamilyOptions
        The options; ``Options.model_config["title"]`` says in a line what the family is.
    corpus_kind : str
        What its corpora hold, ``documents`` or ``vectors``.
    schedules : tuple of str
        The schedules that it can be fitted by.
    is_sampler : bool
        Whether its states are samples, whose predictions are better averaged.
    requires_labels : bool
        Whether a corpus without labels is refused.
    uses_linear_algebra : bool
        Whether it calls NumPy's, whose last places depend on the processor.
    """

    shard_model: ClassVar[type[AnyShardModel]]
    Options: ClassVar[type[FamilyOptions]]
    corpus_kind: ClassVar[str] = "documents"
    schedules: ClassVar[tuple[str, ...]] = ("batch",)
    is_sampler: ClassVar[bool] = False
    requires_labels: ClassVar[bool] = False
    uses_linear_algebra: ClassVar[bool] = False

    def make_shard_model(self, options: OptionsT) -> AnyShardModel:
        """Return the half beside the shards with its options; options may choose another one than `shard_model`."""
        return self.shard_model(options)

    @abstractmethod
    def initialise(self, summary: Summary, options: OptionsT, stream: Stream) -> GlobalStateT:
        """Return the global state before any document has been seen."""

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
        """Return the hyperparameters worth watching."""
        return {}

    @abstractmethod
    def describe(self, block: RowsT, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics by the `count` most probable words of a block."""

    def moved_tokens(self, delta: Delta) -> float:
        """Return how many of the tokens swept have moved between topics."""
        return delta.number("moved")

    def needs_another_round(self, global_state: GlobalStateT) -> bool:
        """Return whether the iteration goes on with one more sweep."""
        return False

    def uncounted_tokens(self, global_state: GlobalStateT) -> float:
        """Return how many tokens do not count yet: while there are any, a run does not end before its iterations."""
        return 0.0

    def cannot_change(self, global_state: GlobalStateT) -> bool:
        """Return whether no token can move: a run ends with the first sweep in which none has moved."""
        return False

    def word_concentration(self, global_state: GlobalStateT) -> float | None:
        """Return B = sum_w b_w, the concentration of topics over words; None where the family has none."""
        return None

    def label_table(self, global_state: GlobalStateT) -> LabelTable | None:
        """Return the labels and numbers of the training corpus that the model knows; None where it takes none."""
        return None


class Resumable(Family[OptionsT, GlobalStateT, RowsT]):
    """A family of which a fit can go on from another run; where its shard model can too, from its local states."""

    @abstractmethod
    def carry(
        self, global_state: GlobalStateT, known: GlobalStateT, options: OptionsT, before: OptionsT
    ) -> tuple[GlobalStateT, int] | None:
        """Return the global state of a fit that goes on from another run of the family.

        Parameters
        ----------
        global_state : GlobalState
            As `initialise` made them.
        known : GlobalState
            Those that the other run ended with.
        options, before : FamilyOptions
            The options of the fit, and of the other run.

        Returns
        -------
        global_state : GlobalState
            They hold what has been learned of what `options` learn. Shards that are still the same then go on from
            their local states, and others start with each topic in the column that it had.
        columns : int
            How many columns topics have. Instead of both None, where the local states do not fit: then all shards start
            from proportions and topics.
        """


class Stochastic(Family[OptionsT, GlobalStateT, RowsT]):
    """A family that can be fitted by minibatches of shards; its shard model is stochastic too."""

    @abstractmethod
    def corpus_tokens(self, global_state: GlobalStateT) -> float:
        """Return the tokens of the whole corpus."""

    @abstractmethod
    def is_stochastic(self, global_state: GlobalStateT) -> bool:
        """Return whether a model was fitted by minibatches."""

    @abstractmethod
    def global_state_for_steps(
        self, global_state: GlobalStateT, summary: Summary, options: OptionsT, minibatches: int
    ) -> GlobalStateT:
        """Return the global state by which a model that was fitted in batches goes on in steps.

        Parameters
        ----------
        global_state : GlobalState
            The model's.
        summary : Summary
            Of the corpus of which minibatches come.
        options : FamilyOptions
            The options.
        minibatches : int
            How many there would have been of what it was fitted to.

        Returns
        -------
        GlobalState
            The state.
        """


class Simulates(Family[OptionsT, GlobalStateT, RowsT]):
    """A family that documents or vectors can be simulated from."""

    @abstractmethod
    def draw_model(self, summary: Summary, options: OptionsT, stream: Stream) -> tuple[Arrays, GlobalStateT]:
        """Draw a model to simulate from: topics as `families.generative` keeps them, or rows; and its global state."""

    @abstractmethod
    def simulate(
        self, topics: Arrays, global_state: GlobalStateT, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents | Vectors, npt.NDArray[np.float64]]:
        """Draw documents, or vectors, without ids, and their proportions."""


class WeighsLabels(Family[OptionsT, GlobalStateT, RowsT]):
    """A family whose labels have factors of their own."""

    @abstractmethod
    def label_weights(self, global_state: GlobalStateT) -> npt.NDArray[np.float64]:
        """Return how much each label raises each topic.

        Parameters
        ----------
        global_state : GlobalState
            The model's.

        Returns
        -------
        numpy.ndarray of float64, shape (labels, topics)
            Labels and numbers in the order of the training corpus's table, topics by permanent ids: the log of the
            factor by which a label scales a topic's proportion, before proportions are normalised.
        """


AnyFamily = Family[Any, Any, Any]
