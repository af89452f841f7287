"""Base classes of the workers' halves of model families.

A family has two classes. Its `ShardModel` computes on the workers, with shards of documents and with blocks of the
vocabulary. Its `collapsium.workers.families.family.Family` computes on the driver and names the shard model. A shard
model has the family's options and travels with every task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels import prediction
from collapsium.workers.kernels.special import elementary

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.arrays.array_fields import FamilyArrays
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.arrays.random_streams import Stream
    from collapsium.workers.arrays.state import Arrays
    from collapsium.workers.families.document_entries import DocumentEntries
    from collapsium.workers.kernels.jit import AnyKernel
    from collapsium.workers.kernels.metrics.likelihood import DirichletTopics


Vector = npt.NDArray[np.float64]

FOLD_IN_SWEEPS = 100  # Most zeroth-order sweeps over a document; nearly all documents converge earlier

FOLD_IN_KERNELS = (prediction.fold_in, prediction.pair_probability)


def fold_in_counts(shard: Shard, word_probability: Vector, prior: Vector) -> npt.NDArray[np.float32]:
    """Return the expected counts of unseen documents, fitted by zeroth-order sweeps (CVB0)."""
    counts = np.zeros((shard.documents, prior.size))
    prediction.fold_in(document_pairs(shard), word_probability, prior, FOLD_IN_SWEEPS, counts)
    return counts.astype(np.float32)


def pair_probability(heldout: Shard, theta: Vector, phi: Vector, rest_word: float) -> Vector:
    """Return the predictive probability of each held-out pair: sum_k theta_dk phi_kw, plus that of new topics."""
    probability, rest = np.empty(heldout.pairs), np.maximum(1.0 - theta.sum(axis=1), 0.0)
    rest_words = np.full(len(phi), rest_word)
    prediction.pair_probability(heldout.offsets, heldout.position, theta, phi, rest, rest_words, probability)
    return probability


# A shard of documents or of vectors; the methods of a family declare which of the two they take
AnyShard: TypeAlias = Any

OptionsT = TypeVar("OptionsT")
GlobalStateT = TypeVar("GlobalStateT", bound=GlobalState)
RowsT = TypeVar("RowsT", bound=Rows)
LocalT = TypeVar("LocalT", bound=LocalState)


class Predicts(ABC, Generic[OptionsT, GlobalStateT, RowsT, LocalT]):
    """Computation of finished models on a shard of documents or on a block of the vocabulary.

    Methods change no argument in place, as a task may run twice.

    Parameters
    ----------
    options : pydantic.BaseModel
        The family's options, frozen.

    Attributes
    ----------
    global_state_type, rows_type, local_type : type
        Classes of the global state, of the words' rows, and of the local state of a shard.
    documents_type : type
        Class of the part of the local state that a finished model saves; a base class of `local_type`.
    arrays : FamilyArrays
        Declaration of the arrays of these states, by which those from disk are checked.
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
    dirichlet_proportions : bool
        Whether the proportions of all documents have one Dirichlet prior over flat topics, which `dirichlet_topics`
        returns.
    """

    global_state_type: ClassVar[type[GlobalState]]
    rows_type: ClassVar[type[Rows]]
    local_type: ClassVar[type[LocalState]]
    documents_type: ClassVar[type[LocalState]]
    arrays: ClassVar[FamilyArrays]
    uses_labels: ClassVar[bool] = False
    uses_segments: ClassVar[bool] = False
    folds_in_at_a_point: ClassVar[bool] = False
    dirichlet_proportions: ClassVar[bool] = False

    def __init__(self, options: OptionsT) -> None:
        self.options = options

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

    def dirichlet_topics(self, rows: RowsT, global_state: GlobalStateT) -> DirichletTopics:
        """Return the topics of the words of `rows`, and the Dirichlet prior of their proportions in a document.

        Likelihoods of documents (`kernels.metrics.likelihood`) integrate the proportions out. Only families with
        `dirichlet_proportions` have this method.

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
        raise NotImplementedError

    def weighed(self, shard: Shard, rows: RowsT) -> Shard:
        """Return a shard with the weights of its words, if they have any."""
        return shard

    def word_tokens(self, rows: RowsT) -> npt.NDArray[np.float64] | None:
        """Return the expected tokens of each word, whose sum is the corpus's; None if the model has no such counts."""
        return None

    @abstractmethod
    def document_lengths(self, local: LocalT) -> npt.NDArray[np.float64]:
        """Return the expected tokens of each document, which equal its length."""


class ShardModel(Predicts[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A family's computation beside the shards in a fit, besides what its finished models compute."""

    def fold_in_kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that `fold_in` and `predict` call: by default those of a fit."""
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
            As returned by the driver's `initialise`.
        stream : Stream
            Random stream of the shard.
        warm : Arrays, optional
            Arrays of another run, of any family, for a warm start: its proportions ``document_topic``, float32, shape
            (documents, topics of that run); its probabilities ``word_topic``, float32, shape (words of the shard,
            topics of that run); and, if that run has a tree, ``topic_parent``, int64, the parent of each topic, -1 for
            the root. The run has at most as many topics as the option ``topics``. Responsibilities are then
            q_dwk ~ theta_dk phi_kw, and sweeps must not treat the local state as that of a cold start.

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

    @abstractmethod
    def advance(self, rows: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, GlobalStateT]:
        """Return the rows and the global state for another sweep of a shard before its delta is reduced."""

    @abstractmethod
    def fold(self, block: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, Delta]:
        """Return a block's rows after a delta, whose word ids count from its first word, and sums for `update`."""

    def finished_rows(self, block: RowsT, global_state: GlobalStateT) -> RowsT:
        """Return a block's rows as a finished model saves them."""
        return block

    def blank_rows(self, low: int, high: int, global_state: GlobalStateT) -> RowsT:
        """Return a finished model's rows of the words `low` to `high` - 1, which were added to its vocabulary later."""
        return self.finished_rows(self.first_rows(low, high, global_state), global_state)


class Stochastic(ShardModel[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A shard model that can be fitted by minibatches of shards, without local states."""

    @abstractmethod
    def step(self, shard: AnyShard, rows: RowsT, global_state: GlobalStateT, stream: Stream) -> Delta:
        """Return the stochastic step of a shard."""

    @abstractmethod
    def blend(self, block: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, Delta]:
        """Return a block's rows after a minibatch's steps, and the sums over them that `update` needs."""

    @abstractmethod
    def rows_for_steps(self, rows: RowsT, factor: float) -> RowsT:
        """Return the rows of a batch model as the start of stochastic steps, scaled by a ratio of corpus sizes."""


class Resumable(ShardModel[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A shard model that can continue from the local state that another run saved of the same shard."""

    @abstractmethod
    def continue_from(
        self, shard: AnyShard, saved: Arrays, rows: RowsT, global_state: GlobalStateT
    ) -> tuple[LocalT, Delta]:
        """Return the first local state and delta of a shard that another run of the family has swept."""


class Growing(ShardModel[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A shard model whose fits can begin on a sample of the documents; the others are empty until they join."""

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


class Editable(ShardModel[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A shard model whose topics can be merged, deleted and split in finished models."""

    @abstractmethod
    def topic_prior(self, global_state: GlobalStateT) -> npt.NDArray[np.float64]:
        """Return the Dirichlet parameters a_k of a document's topics in prediction, shape (topics,)."""

    @abstractmethod
    def word_prior(self, rows: RowsT, global_state: GlobalStateT) -> npt.NDArray[np.float64]:
        """Return the Dirichlet parameters b_w of the words of the rows in prediction, shape (words,)."""

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
        """Return the documents of a finished model with other counts, of so many topics."""


AnyPredicts = Predicts[Any, Any, Any, Any]
AnyShardModel = ShardModel[Any, Any, Any, Any]


def fit_kernels(model: AnyShardModel, global_state: GlobalState) -> list[AnyKernel]:
    """Return the kernels that a fit of a model calls, with those that every family calls."""
    return [*model.kernels(global_state), elementary]
