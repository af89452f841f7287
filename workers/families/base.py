"""The half of a model family that runs beside a shard or a block of the vocabulary.

A family has one class here, a `ShardModel`, and one on the driver (`collapsium.pipeline.families.base.Family`), which
names this one. An instance carries the options and travels with every task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

from collapsium.workers.arrays.state import GlobalState, LocalState, Rows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collapsium.workers.arrays.array_fields import FamilyArrays
    from collapsium.workers.arrays.delta import Arrays, Delta
    from collapsium.workers.arrays.random_streams import Stream
    from collapsium.workers.kernels.jit import Kernel

AnyShard: TypeAlias = Any
"""A shard of documents or of vectors; a family takes one of them, and its methods name which."""

OptionsT = TypeVar("OptionsT")
GlobalStateT = TypeVar("GlobalStateT", bound=GlobalState)
RowsT = TypeVar("RowsT", bound=Rows)
LocalT = TypeVar("LocalT", bound=LocalState)


class ShardModel(ABC, Generic[OptionsT, GlobalStateT, RowsT, LocalT]):
    """What a family does beside a shard, or with a block of the vocabulary.

    Methods change nothing in place: a task may run twice.

    Parameters
    ----------
    options : pydantic.BaseModel
        The family's options, frozen.

    Attributes
    ----------
    globals_type, rows_type, local_type, documents_type : type
        States of the family: what every shard needs, what belongs to single words, what a shard keeps between sweeps,
        and the part of this that a finished model keeps, of which `local_type` is a subclass.
    arrays : FamilyArrays
        What the arrays of these states must hold; those from disk are checked by it.
    uses_labels : bool
        Whether shards come with ``labels``, what else is known of the documents. The model's state then has the
        training corpus's table of them, `LabelTable.packed`, as ``label_table``; `fold_in` heeds the labels too, and
        documents without words are folded in to what their labels alone say.
    uses_segments : bool
        Whether shards and held-out pairs come with ``segments``. The held-out pairs of a document have as many as it.
    folds_in_at_a_point : bool
        Whether documents without words are put at one point of the prior, such as a path that is chosen, not at what
        the prior lets one expect.
    """

    global_state_type: ClassVar[type[GlobalState]]
    rows_type: ClassVar[type[Rows]]
    local_type: ClassVar[type[LocalState]]
    documents_type: ClassVar[type[LocalState]]
    arrays: ClassVar[FamilyArrays]
    uses_labels: ClassVar[bool] = False
    uses_segments: ClassVar[bool] = False
    folds_in_at_a_point: ClassVar[bool] = False

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    def load_local(self, arrays: Mapping[str, Any]) -> LocalT:
        """Return the local state that a checkpoint or a spill file holds; a family may leave its arrays on disk."""
        return cast(LocalT, self.local_type.from_arrays(arrays))

    def documents(self, local: LocalT) -> LocalState:
        """Return the part of a local state that a finished model keeps."""
        return self.documents_type.from_arrays(local.to_arrays())

    @abstractmethod
    def kernels(self, global_state: GlobalStateT) -> Sequence[Kernel[..., Any]]:
        """Return the kernels that a fit calls in every iteration: they are compiled before the first."""

    def fold_in_kernels(self, global_state: GlobalStateT) -> Sequence[Kernel[..., Any]]:
        """Return the kernels that folding in and predicting call."""
        return self.kernels(global_state)

    @abstractmethod
    def initial_rows(self, words: int, global_state: GlobalStateT) -> RowsT:
        """Return the rows of `words` words before any document has been seen."""

    @abstractmethod
    def start(
        self, shard: AnyShard, rows: RowsT, global_state: GlobalStateT, stream: Stream, warm: Arrays | None = None
    ) -> tuple[LocalT, Delta]:
        """Return a shard's first local state, and its counts as changes from nothing.

        Parameters
        ----------
        shard : Shard or VectorShard
            The documents, or the vectors.
        rows : Rows
            Initial rows of ``shard.words``.
        global_state : GlobalState
            As the driver's `initialise` made them.
        stream : Stream
            Addressed to the shard.
        warm : Arrays, optional
            What another run, of any family, knows: ``document_topic``, float32, shape (documents, topics of that run),
            its proportions of the documents; ``word_topic``, float32, shape (words of the shard, topics of that run),
            its probabilities of the shard's words; and where that run has a tree ``topic_parent``, int64, the parent of
            each topic among them, -1 for the root. It has at most as many topics as the option ``topics`` says. The
            start is then q ~ ``document_topic`` ``word_topic``, and no sweep may treat it as a cold one.

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
        """Pass once over a shard; `rows` has a row for each of ``shard.words``."""

    @abstractmethod
    def advance(self, rows: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, GlobalStateT]:
        """Return the rows and globals with which a shard is swept once more before its delta is reduced."""

    @abstractmethod
    def fold(self, block: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, Delta]:
        """Add a delta, whose word ids count from the block's first; return the rows and what `update` needs of them."""

    def finished_rows(self, block: RowsT, global_state: GlobalStateT) -> RowsT:
        """Return the rows that a finished model keeps of a block."""
        return block

    @abstractmethod
    def fold_in(self, shard: AnyShard, rows: RowsT, global_state: GlobalStateT, stream: Stream) -> LocalState:
        """Fit the local state of unseen documents with the rest of the model held fixed."""

    @abstractmethod
    def predict(self, heldout: AnyShard, local: LocalT, rows: RowsT, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return what the model expects of what it has not seen; `rows` has a row for each of ``heldout.words``.

        Parameters
        ----------
        heldout : Shard or VectorShard
            Held-out pairs of the documents that `local` is of, or the vectors that it is of.
        local : LocalState
            As a sweep or `fold_in` left it.
        rows : Rows
            Complete rows, with what sweeps do not see.
        global_state : GlobalState
            The model's.

        Returns
        -------
        mapping of str to numpy.ndarray
            Of documents, ``probability``, float64, shape (pairs,): that of each held-out pair. Of vectors, ``error``,
            float64, shape (vectors,): the squared distance |t - t^|^2 of each from its reconstruction.
        """

    @abstractmethod
    def probabilities(self, rows: RowsT, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return the probability of each word under each topic, as prediction has it.

        Parameters
        ----------
        rows : Rows
            The rows of the words.
        global_state : GlobalState
            The model's.

        Returns
        -------
        mapping of str to numpy.ndarray
            ``word_topic``, float64, shape (words, topics). Of a tree there is ``topic_parent`` too, int64: the column
            of each column's parent, -1 for the root.
        """

    @abstractmethod
    def infer(self, local: Any, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return the proportions of documents, and what else a model says of them.

        Parameters
        ----------
        local : LocalState
            What a finished model keeps of their local state (`documents_type`), or all of it.
        global_state : GlobalState
            The model's.

        Returns
        -------
        mapping of str to numpy.ndarray
            ``document_topic``, float, shape (documents, topics), columns by permanent ids. Where the family has more to
            say, arrays ``document_x``, shape (documents, n): whole numbers, such as ``document_path``, the nodes' ids
            from the root on, or floats, such as ``document_factors``; `collapsium infer` writes each into a column
            ``x`` of lists. Where it uses segments, ``segment_topic`` of shape (segments, topics) and ``segments``,
            int64, how many each document has.
        """

    def word_tokens(self, rows: RowsT) -> npt.NDArray[np.float64] | None:
        """Return the tokens that a model expects of each word, as many as the corpus has; None where it has none."""
        return None

    @abstractmethod
    def document_lengths(self, local: LocalT) -> npt.NDArray[np.float64]:
        """Return the tokens that a local state expects of each document: as many as it has."""


class Stochastic(ShardModel[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A shard model that can be fitted by minibatches of shards, which then keep no local state."""

    @abstractmethod
    def step(self, shard: AnyShard, rows: RowsT, global_state: GlobalStateT, stream: Stream) -> Delta:
        """Return the step of a shard."""

    @abstractmethod
    def blend(self, block: RowsT, delta: Delta, global_state: GlobalStateT) -> tuple[RowsT, Delta]:
        """Move a block by a minibatch's steps; return the rows and what `update` needs of them."""

    @abstractmethod
    def rows_for_steps(self, rows: RowsT, factor: float) -> RowsT:
        """Return the rows of a model that was fitted in batches, scaled to the corpus of which minibatches come."""


class Resumable(ShardModel[OptionsT, GlobalStateT, RowsT, LocalT]):
    """A shard model that goes on from another run's local state of the same shard."""

    @abstractmethod
    def continue_from(
        self, shard: AnyShard, saved: Arrays, rows: RowsT, global_state: GlobalStateT
    ) -> tuple[LocalT, Delta]:
        """Go on from what another run of the family kept of this very shard.

        Parameters
        ----------
        shard : Shard
            The documents.
        saved : Arrays
            The local state as arrays.
        rows, global_state : Rows and GlobalState
            As for `start`; the global state is what the driver's `carry` made.

        Returns
        -------
        local : LocalState
            The same, so old that no sweep treats it as a cold one.
        delta : Delta
            Its counts, as changes from nothing.
        """


AnyShardModel = ShardModel[Any, Any, Any, Any]


def fit_kernels(model: AnyShardModel, global_state: GlobalState) -> list[Kernel[..., Any]]:
    """Return the kernels that a fit calls in every iteration, those of all families too."""
    from collapsium.workers.kernels.special import elementary

    return [*model.kernels(global_state), elementary]
