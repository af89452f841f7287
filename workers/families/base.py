"""What a model family gives beside a shard, and how it is found.

A family is two files that meet in plain arrays: `collapsium.workers.<family>`, described here, and
`collapsium.pipeline.families.<family>`, described in `collapsium.pipeline.families.base`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import AnyShard
    from collapsium.workers.arrays.array_fields import FamilyArrays
    from collapsium.workers.arrays.delta import Arrays, Delta
    from collapsium.workers.arrays.random_streams import Stream
    from collapsium.workers.kernels.jit import Kernel

FAMILIES = {
    "author-topic": "collapsium.workers.families.gibbs.author_topic",
    "dirichlet-network": "collapsium.workers.families.networks.dirichlet_network",
    "gibbs-hdp": "collapsium.workers.families.gibbs.gibbs_hdp",
    "gibbs-lda": "collapsium.workers.families.gibbs.gibbs_lda",
    "gibbs-ncrp": "collapsium.workers.families.ncrp.gibbs_ncrp",
    "hca": "collapsium.workers.families.hca.hca",
    "hdp": "collapsium.workers.families.cvb.hdp",
    "hdsp": "collapsium.workers.families.vb.hdsp",
    "labeled-lda": "collapsium.workers.families.gibbs.labeled_lda",
    "lda": "collapsium.workers.families.cvb.lda",
    "ncrp": "collapsium.workers.families.ncrp.ncrp",
    "partially-labeled-lda": "collapsium.workers.families.gibbs.partially_labeled_lda",
    "segmented-lda": "collapsium.workers.families.networks.segmented_lda",
    "sequential-lda": "collapsium.workers.families.networks.sequential_lda",
    "vb-lda": "collapsium.workers.families.vb.vb_lda",
}
"""Module of each family, imported when the family is first used: a command uses one of them."""


class Sweeps(Protocol):
    """The half of a family that runs beside a shard or a block of the vocabulary.

    Four bags of named arrays go around. ``globals`` is what every shard needs and has no dim ``word``; ``rows`` is
    what has the dim ``word``, cut to the words at hand; a ``block`` is the rows of a run of the vocabulary; a
    ``local`` is what a shard keeps between sweeps. Nothing is changed in place: a task may run twice.

    Names read as their dims. What of a block is named ``block_...`` is not among the rows that sweeps get. Of a local,
    a finished model keeps the arrays whose names begin with ``document``.

    A family whose module says ``LABELLED = True`` gets shards with ``labels``, what else is known of the documents. Its
    globals have the training corpus's table of them as ``label_table``, `LabelTable.packed`, by which it numbers those
    of any shard (`collapsium.storage.corpus.label_index.numbered`). `settle` heeds them too: documents without words
    are then settled to what their labels alone say.

    A family whose module says ``SEGMENTED = True`` gets shards with ``segments``, and so are its held-out pairs: those
    of a document have as many segments as it; without ``segments`` they are its own. `infer` then gives
    ``segment_topic`` too, their proportions, shape (segments, topics), and ``segments``, int64, how many each
    document has.

    Documents without words and labels are settled to what the prior lets one expect of them. A family that puts them at
    one point of the prior instead, such as a path that it chooses, says so in its module: ``POINT = True``.
    """

    # ``UNSEEN_KERNELS`` of the module are what folding in calls, where that is much less than a fit does.

    ARRAYS: ClassVar[FamilyArrays]  # what the arrays must hold, by which those from disk are checked

    def kernels(self, globals: Arrays) -> Sequence[Kernel[..., Any]]:
        """Name the kernels that a fit calls in every iteration: they are compiled before the first."""

    def blank(self, words: int, globals: Arrays) -> Arrays:
        """Make the rows of `words` words before any document has been seen."""

    def start(
        self,
        shard: AnyShard,
        rows: Arrays,
        globals: Arrays,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[Arrays, Delta]:
        """Make a shard's first local state, and its counts as changes from nothing.

        Parameters
        ----------
        shard : Shard or VectorShard
            The documents or, of a family that says so on the driver (``CORPUS``), the vectors.
        rows : Arrays
            Blank rows of ``shard.words``.
        globals : Arrays
            As `initialise` made them.
        stream : Stream
            Addressed to the shard.
        warm : Arrays, optional
            What another run, of any family, knows: ``document_topic``, float32, its proportions of the documents, shape
            (documents, topics of that run), and ``word_topic``, float32, its probabilities of the shard's words, shape
            (words of the shard, topics of that run); where that run has a tree, ``topic_parent``, int64, the parent of
            each topic among them, -1 for the root. It has as many topics as the option ``topics`` says, or fewer. The
            start is then q ~ ``document_topic`` ``word_topic`` of document and word, and no sweep may treat it as a
            cold one.

        Returns
        -------
        local : Arrays
            The local state.
        delta : Delta
            Its counts.
        """

    def take(self, shard: AnyShard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
        """Where the family can, as `carry` on the driver says: go on from what another run kept of this very shard.

        Parameters
        ----------
        shard : Shard
            As for `start`.
        kept : Arrays
            The local state, of the same family.
        rows, globals : Arrays
            As for `start`; the globals are those that `carry` made.

        Returns
        -------
        local : Arrays
            The same, so old that no sweep treats it as a cold one.
        delta : Delta
            Its counts, as changes from nothing.
        """

    def sweep(
        self,
        shard: AnyShard,
        local: Arrays,
        rows: Arrays,
        globals: Arrays,
        stream: Stream,
    ) -> tuple[Arrays, Delta]:
        """Pass once over a shard; `rows` has a row for each of ``shard.words``."""

    def advance(self, rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
        """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""

    def step(self, shard: AnyShard, rows: Arrays, globals: Arrays, stream: Stream) -> Delta:
        """In the stochastic schedule, if the family has it: give the step of a shard that has no local state."""

    def blend(self, block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
        """In the stochastic schedule, if the family has it: move a block by a minibatch's steps, and tell of it."""

    def fold(self, block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
        """Add the rows of a delta, whose word ids count from the block's first; give what `update` needs of words."""

    def finish(self, block: Arrays, globals: Arrays) -> Arrays:
        """Give the rows that a finished model keeps of a block."""

    def settle(self, shard: AnyShard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
        """Fit the local state of unseen documents with the rest of the model held fixed."""

    def predict(self, heldout: AnyShard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
        """Say what the model expects of what it has not seen; `rows` has a row for each of ``heldout.words``.

        Parameters
        ----------
        heldout : Shard or VectorShard
            Held-out pairs of the documents that `local` is of, or the vectors that it is of.
        local : Arrays
            As a sweep or `settle` left it.
        rows : Arrays
            Whole rows, with what blocks keep to themselves.
        globals : Arrays
            The model's.

        Returns
        -------
        Arrays
            Of documents, ``probability``, float64, shape (pairs,): that of each held-out pair. Of vectors, ``error``,
            float64, shape (vectors,): the squared norm of what is left of each once it is reconstructed, |t - t^|^2.
        """

    def probabilities(self, rows: Arrays, globals: Arrays) -> Arrays:
        """Give ``word_topic``, float64: the probability of each word at hand under each topic, as prediction has it."""
        # Of a tree, ``topic_parent`` too, int64: the column of each column's parent, -1 for the root.

    def infer(self, local: Arrays, globals: Arrays) -> Arrays:
        """Give what there is to tell of documents.

        Parameters
        ----------
        local : Arrays
            Their local state, or what a finished model keeps of it.
        globals : Arrays
            What every shard needs.

        Returns
        -------
        Arrays
            ``document_topic``, float, their proportions, shape (documents, topics), columns by permanent ids; and,
            where the family has more to tell, arrays ``document_x``, shape (documents, n): whole numbers, such as
            ``document_path``, the nodes' ids from the root on, or floats, such as ``document_factors``. `collapsium
            infer` writes each into a column ``x`` of lists, of int32 or float32. Of a family with segments also
            ``segment_topic`` and ``segments``, which ``collapsium infer --segments`` writes.
        """

    def lengths(self, local: Arrays) -> Arrays:
        """Give ``document_tokens``, the tokens that a local state expects of each document: as many as it has."""


def is_labelled(family: str) -> bool:
    """Tell whether a family takes what is known of documents besides their words."""
    return bool(getattr(load_sweeps(family), "LABELLED", False))


def wanted_by(family: str | None) -> dict[str, bool]:
    """Say what of documents a family takes besides their words, as `Shard.of` and `ShardReference.load` are asked.

    Parameters
    ----------
    family : str or None
        The family's name; none wants the words alone.

    Returns
    -------
    dict of str to bool
        ``labelled`` and ``segmented``.
    """
    flags = {"labelled": "LABELLED", "segmented": "SEGMENTED"}
    sweeps = None if family is None else load_sweeps(family)
    return {name: bool(getattr(sweeps, flag, False)) for name, flag in flags.items()}


def settles_at_a_point(family: str) -> bool:
    """Tell whether a family settles documents without words at one point of its prior, not at what it lets expect."""
    return bool(getattr(load_sweeps(family), "POINT", False))


def fit_kernels(family: str, globals: Arrays) -> list[Kernel[..., Any]]:
    """Return the kernels that a fit calls in every iteration, those of all families too.

    Parameters
    ----------
    family : str
        The family's name.
    globals : Arrays
        Its global state.

    Returns
    -------
    list of Kernel
        The kernels.
    """
    from collapsium.workers.kernels.special import elementary

    return [*load_sweeps(family).kernels(globals), elementary]


def load_sweeps(family: str) -> Sweeps:
    """Import the half of a family that runs beside a shard.

    Parameters
    ----------
    family : str
        The family's name.

    Returns
    -------
    Sweeps
        Its module.
    """
    return cast(Sweeps, importlib.import_module(FAMILIES[family]))
