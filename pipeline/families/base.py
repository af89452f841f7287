"""What a model family gives on the driver, and how it is found.

A family is a module in `collapsium.pipeline.families` with the names of `Family`, and one beside the shards
(`collapsium.workers.families.base`). `FAMILIES` in both names the modules.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.short_repr import ShortRepr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collapsium.storage.corpus.corpus import Corpus
    from collapsium.storage.corpus.label_index import LabelTable
    from collapsium.storage.corpus.shard import Documents
    from collapsium.storage.corpus.vectors import Vectors
    from collapsium.workers.arrays.delta import Arrays, Delta
    from collapsium.workers.arrays.random_streams import Stream
from collections.abc import Iterable, Mapping

import pydantic

FAMILIES = {
    "author-topic": "collapsium.pipeline.families.gibbs.author_topic",
    "dirichlet-network": "collapsium.pipeline.families.networks.dirichlet_network",
    "gibbs-hdp": "collapsium.pipeline.families.gibbs.gibbs_hdp",
    "gibbs-lda": "collapsium.pipeline.families.gibbs.gibbs_lda",
    "gibbs-ncrp": "collapsium.pipeline.families.ncrp.gibbs_ncrp",
    "hca": "collapsium.pipeline.families.hca.hca",
    "hdp": "collapsium.pipeline.families.cvb.hdp",
    "hdsp": "collapsium.pipeline.families.vb.hdsp",
    "labeled-lda": "collapsium.pipeline.families.gibbs.labeled_lda",
    "lda": "collapsium.pipeline.families.cvb.lda",
    "ncrp": "collapsium.pipeline.families.ncrp.ncrp",
    "partially-labeled-lda": "collapsium.pipeline.families.gibbs.partially_labeled_lda",
    "segmented-lda": "collapsium.pipeline.families.networks.segmented_lda",
    "sequential-lda": "collapsium.pipeline.families.networks.sequential_lda",
    "vb-lda": "collapsium.pipeline.families.vb.vb_lda",
}
"""Module of each family, imported when the family is first used: a command uses one of them."""


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
    kept, shown : float
        A word of the vocabulary in a block at rest, and of it what sweeps see.
    swept : float
        A word of a shard while it is swept, besides its rows and the delta.
    delta : float
        A word of a shard in a delta.
    pair, document : float
        A pair and a document of a local state.
    portion : float
        A sweep, besides all this, whose local state lies on disk.
    """

    kept: float
    shown: float
    swept: float
    delta: float
    pair: float
    document: float
    portion: float


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


class FamilyConfig(BaseModel):
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


class Family(Protocol):
    """The half of a family on the driver; ``globals`` and deltas are those of `collapsium.workers.families.base`.

    ``CORPUS`` says what its corpora hold, ``documents`` or ``vectors``. ``CHANGE`` names the fresh number of a delta
    whose share of the tokens is the relative change of the expected counts. ``SCHEDULES`` names the schedules that it
    can be fitted by. ``SAMPLER`` says whether its states are samples, whose predictions are better averaged.
    A module that says ``LINEAR_ALGEBRA = True`` calls NumPy's, whose last places depend on the processor.
    ``NEEDS_LABELS``, if the family has it, says whether a corpus without labels is refused.
    ``Config.title`` says in a line what the family is. ``unsettled`` among the globals is how many tokens do not count
    yet: while there are any, a run does not end before its iterations, however little changes. A positive ``fixed``
    among them says that no token can move: a run ends with the first sweep in which none has moved.
    """

    CORPUS: ClassVar[str]
    CHANGE: ClassVar[str]
    SCHEDULES: ClassVar[tuple[str, ...]]
    SAMPLER: ClassVar[bool]
    Config: ClassVar[type[FamilyConfig]]

    def initialise(self, summary: Summary, config: Any, stream: Stream) -> Arrays:
        """Make the globals before any document has been seen."""

    def carry(self, globals: Arrays, known: Arrays, config: Any, before: Any) -> tuple[Arrays, int] | None:
        """If the family has it: let a fit go on from another run of the family.

        Parameters
        ----------
        globals : Arrays
            As `initialise` made them.
        known : Arrays
            Those that the other run ended with.
        config, before : FamilyConfig
            The options of the fit, and of the other run.

        Returns
        -------
        globals : Arrays
            They know what has been learned of what `config` learns. Shards that are still the same then `take` up their
            local states, and others start with each topic in the column that it had.
        columns : int
            How many columns topics have. Instead of both None, where the local states do not fit: then all shards start
            from proportions and topics.
        """

    def footprint(self, summary: Summary, config: Any) -> Footprint:
        """Say what the state of a fit takes."""

    def update(self, globals: Arrays, delta: Delta, config: Any, stream: Stream) -> Arrays:
        """Make the next globals from a round's sums; a positive ``another_round`` asks for one more sweep."""

    def objective(self, globals: Arrays, delta: Delta) -> dict[str, float]:
        """Give named figures of the state just swept, before `update`; ``objective`` is the stopping rule's."""

    def figures(self, globals: Arrays) -> dict[str, float]:
        """Give the hyperparameters worth watching."""

    def describe(self, block: Arrays, globals: Arrays, count: int) -> Description:
        """Describe the topics by the `count` most probable words of a block."""

    def label_weights(self, globals: Arrays) -> npt.NDArray[np.float64]:
        """If the family has it: tell how much each label raises each topic, for people.

        Parameters
        ----------
        globals : Arrays
            Of a model of a family that takes labels.

        Returns
        -------
        numpy.ndarray of float64, shape (labels, topics)
            Labels and numbers in the order of the training corpus's table, topics by permanent ids: the log of the
            factor by which a label scales a topic's proportion, before proportions are normalised. Where a family has
            no such factors, tables and maps take the log of the proportion that the label alone lets one expect over
            the topic's share of the corpus.
        """

    def truth(self, summary: Summary, config: Any, stream: Stream) -> tuple[Arrays, Arrays]:
        """Draw a model to simulate from: topics as `families.generative` keeps them, or rows; and globals."""

    def simulate(
        self,
        rows: Arrays,
        globals: Arrays,
        documents: int,
        tokens: float,
        stream: Stream,
    ) -> tuple[Documents | Vectors, npt.NDArray[np.float64]]:
        """Draw documents, or vectors, from `truth`, without ids, and their proportions; a portion has its stream."""


def family_names() -> list[str]:
    """Return the names of all families."""
    return sorted(FAMILIES)


def load_family(name: str) -> Family:
    """Import a family's half on the driver.

    Parameters
    ----------
    name : str
        The family's name.

    Returns
    -------
    Family
        Its module.

    Raises
    ------
    OptionError
        There is no such family.
    """
    if name not in FAMILIES:
        raise OptionError(f"unknown family '{name}'{suggestion(name, family_names())}", "family")
    return cast(Family, importlib.import_module(FAMILIES[name]))


def require_schedule(family: str, schedule: str) -> None:
    """Refuse a schedule that a family cannot be fitted by.

    Parameters
    ----------
    family : str
        The family's name.
    schedule : str
        The schedule's.

    Raises
    ------
    OptionError
        The family does not name it.
    """
    able = load_family(family).SCHEDULES
    if schedule not in able:
        raise OptionError(f"--schedule {schedule}: family '{family}' can be fitted by {', '.join(able)} alone")


def require_corpus(family: str, corpus: Corpus) -> None:
    """Refuse a corpus that holds something else than a family takes.

    Parameters
    ----------
    family : str
        The family's name.
    corpus : Corpus
        The corpus.

    Raises
    ------
    MismatchError
        It holds vectors and the family takes documents, or the other way round.
    """
    corpus.require(load_family(family).CORPUS, f"family '{family}'")


def make_config(family: str, options: Mapping[str, Any], others: Iterable[str] = ()) -> FamilyConfig:
    """Check a family's options.

    Parameters
    ----------
    family : str
        The family's name.
    options : mapping
        Options by name; what is left out has its default.
    others : iterable of str, optional
        Names that the caller takes besides, one of which may have been meant by an unknown name.

    Returns
    -------
    FamilyConfig
        All options.

    Raises
    ------
    OptionError
        An option is unknown, missing or out of range.
    """
    config = load_family(family).Config
    for name in options:
        if name not in config.model_fields:
            near = suggestion(name, (*config.model_fields, *others))
            raise OptionError(f"unknown option '{name}' of family '{family}'{near}")
    try:
        return config.model_validate(dict(options))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "options"
        if first["type"] == "missing":
            raise OptionError(f"`{name}` is required: {config.model_fields[name].description}") from None
        raise OptionError(f"{_expected(first)}, found {first['input']!r}", name) from None


def _expected(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    return message.replace("expected greater", "expected a value greater").replace(
        "expected less", "expected a value less"
    )
