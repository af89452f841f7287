"""What a comparison is asked for, and the cells that come of it: families by numbers of topics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from collapsium.pipeline.engine.setup.limits import ITERATIONS, KINDS, Limits
from collapsium.pipeline.families.registry import (
    family_names,
    load_family,
    make_options,
    require_corpus,
    require_schedule,
)
from collapsium.pipeline.workflows.compare.baselines.libraries import ALL as PEERS
from collapsium.pipeline.workflows.compare.baselines.libraries import SAMPLERS
from collapsium.pipeline.workflows.compare.baselines.library_hdps import ALPHA, FINDING, STARTING
from collapsium.pipeline.workflows.compare.cells import RANDOM, PeerCell
from collapsium.pipeline.workflows.compare.options import (
    RESTARTS,
    STARTS,
    TOPICS,
    number_of,
    require_varied,
    variants_of,
)
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.errors import MismatchError, OptionError, flag_of, suggestion
from collapsium.workers.tasks import document_parts

LIMITS = ("iterations", "samples", "sample_every", "score_every", "local_sweeps")  # that --set may give a family
PEER_OPTIONS: dict[str, type] = {"iterations": int, "alpha": float, "beta": float}
SAMPLING: dict[str, type] = {"samples": int, "sample_every": int}  # of peers that sample
PRIORS = {"alpha": 0.1, "beta": 100.0}  # of peers: what our families have by themselves
FEW = 100  # topics that are foreseen where nothing is said of them


@dataclass(frozen=True)
class Cell:
    """One cell: fits of a family that differ in their seeds alone.

    Attributes
    ----------
    name : str
        Of its folder.
    family : str
        The family.
    topics : int or None
        Number of topics K, or the most; None where the family finds it.
    start : str
        What the fits begin from, and what of their options varies, for people.
    options : dict
        The family's.
    limits : dict
        Those of `collapsium.pipeline.engine.setup.limits.Limits`.
    restarts : int
        How many fits.
    warm : bool
        Whether they begin from the fits of another cell.
    """

    name: str
    family: str
    topics: int | None
    start: str
    options: dict[str, Any]
    limits: dict[str, Any]
    restarts: int
    warm: bool = False

    @property
    def iterations(self) -> int:
        """Those of a fit."""
        return Limits(**self.limits).sweeps

    @property
    def work(self) -> float:
        """What it takes beside other cells: steps, iterations times topics, of all fits."""
        return float(self.iterations * self.restarts * (self.topics or FEW))

    @property
    def label(self) -> str:
        """The family and how it begins, for a legend."""
        return self.family if self.start == RANDOM else f"{self.family}, {self.start}"


@dataclass(frozen=True)
class Asked:
    """What a comparison is asked for.

    Attributes
    ----------
    families, topics, start_topics : tuple
        What spans the grid: families by `topics` or, for a family that finds their number, by `start_topics`.
    restarts, iterations, samples, sample_every : int
        Of every cell; samples are kept of samplers alone.
    settings : dict
        Options by family or peer and name; they go over all else.
    start_from : str or None
        The family that others begin from too.
    peers : tuple of str
        Other libraries.
    fraction : float or None
        Share of the tokens that is held out; None where a held-out corpus is given.
    seed : int
        Of the split and of all fits.
    vary : dict or None
        Several values of options, by family or ``*`` and name: a cell for each, of families that have the option.
    """

    families: tuple[str, ...]
    topics: tuple[int, ...] = TOPICS
    start_topics: tuple[int, ...] = STARTS
    restarts: int = RESTARTS
    iterations: int = ITERATIONS
    samples: int = 0
    sample_every: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    start_from: str | None = None
    peers: tuple[str, ...] = ()
    fraction: float | None = None
    seed: int = 0
    vary: Mapping[str, Mapping[str, Sequence[Any]]] | None = None

    def __post_init__(self) -> None:
        named = [*self.families, *([] if self.start_from is None else [self.start_from])]
        for name in named:
            load_family(name)
        for name in self.peers:
            if name not in PEERS:
                raise OptionError(f"--peers: unknown library '{name}'{suggestion(name, PEERS)}")
        _require_different("families", self.families, least=0 if self.start_from else 1)
        _require_different("peers", self.peers, least=0)
        for what, numbers in (("topics", self.topics), ("start-topics", self.start_topics)):
            _require_different(what, numbers, least=1)
            for number in numbers:
                _require_whole(what, number)
        _require_whole("restarts", self.restarts)
        if type(self.seed) is not int:
            raise OptionError(f"--seed: expected a whole number, found {self.seed!r}")
        Limits(iterations=self.iterations, samples=self.samples, sample_every=self.sample_every)
        for owner, options in self.settings.items():
            if owner not in (*named, *self.peers):
                name = next(iter(options), "option")
                raise OptionError(
                    f"--set {owner}.{name}: '{owner}' is not compared{suggestion(owner, [*named, *self.peers])}"
                )

        require_varied(self.vary or {}, named)

    def record(self) -> dict[str, Any]:
        """Return what `compare.json` shall say."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))  # lists for tuples, as JSON has them
        return found


def _require_whole(what: str, number: object) -> None:
    if type(number) is not int or number < 1:
        raise OptionError(f"--{what}: expected a whole number of 1 or more, found {number!r}")


def _require_different(what: str, values: Sequence[object], least: int) -> None:
    if len(values) < least:
        raise OptionError(f"--{what}: name one or more, with commas between")
    twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if twice is not None:
        raise OptionError(f"--{what}: {twice} is named twice")


def cells_of(asked: Asked, shards: int) -> list[Cell]:
    """List the cells in the order in which they are fitted, all options checked.

    Parameters
    ----------
    asked : Asked
        What is asked for.
    shards : int
        Of the training corpus.

    Returns
    -------
    list of Cell
        The one that others begin from is the first.

    Raises
    ------
    OptionError
        An option of a family is unknown or out of range.
    """
    families = list(asked.families)
    cells = [cell for family in families for cell in _cells(asked, family, warm=False)]
    if asked.start_from is not None:
        own = _cells(asked, asked.start_from, warm=False)
        first = max(own, key=lambda cell: int(cell.options.get("start_topics", cell.topics or 0)))
        cells = [first, *(cell for cell in cells if cell.name != first.name)]
        others = [family for family in families if family != asked.start_from]
        cells += [cell for family in others for cell in _cells(asked, family, warm=True)]
    for cell in cells:
        Limits(**cell.limits).sampled(shards)
    return cells


def _cells(asked: Asked, family: str, *, warm: bool) -> list[Cell]:
    """List a family's cells: by its option `topics`; else by `start_topics`, if it has that; by what varies besides."""
    fields = load_family(family).Options.model_fields
    require_schedule(family, "batch")
    more = f"-from-{asked.start_from}" if warm else ""
    begins = f"from {asked.start_from}" if warm else RANDOM
    spans: list[tuple[str, int | None, str, dict[str, Any]]] = [(family, None, begins, {})]
    if "topics" in fields:
        spans = [(f"{family}-{topics}", topics, begins, {"topics": topics}) for topics in asked.topics]
    elif "start_topics" in fields and not warm:
        spans = [
            (f"{family}-from-{n}", None, f"from {n} topic{'s' * (n > 1)}", {"start_topics": n})
            for n in asked.start_topics
        ]
    cells = []
    for variant in variants_of(asked.vary or {}, family):
        for name, topics, start, options in spans:
            told = variant.label if start == RANDOM and variant.label else f"{start}, {variant.label}".rstrip(", ")
            given = {**options, **variant.options}
            cells.append(_cell(asked, family, f"{name}{variant.suffix}{more}", topics, told, given, warm))
    if len({cell.name for cell in cells}) < len(cells):
        raise OptionError("--vary: values that differ in signs alone cannot name folders; compare them one by one")
    return cells


def _cell(
    asked: Asked, family: str, name: str, topics: int | None, start: str, spans: dict[str, Any], warm: bool
) -> Cell:
    half = load_family(family)
    limits: dict[str, Any] = {"iterations": asked.iterations}
    if half.is_sampler and asked.samples:
        limits.update(samples=asked.samples, sample_every=asked.sample_every)
    options = {option: number_of(value, topics, f"{family}.{option}") for option, value in spans.items()}
    for option, value in asked.settings.get(family, {}).items():
        named = f"{family}.{option}"
        if option in ("topics", "start_topics"):
            raise OptionError(f"--set {named}: the grid has these; say --{option.replace('_', '-')}")
        if option in spans:
            raise OptionError(f"--set {named}: --vary has several values of it; say one of the two")
        if option in LIMITS:
            limits[option] = value
        elif option not in half.Options.model_fields:
            known = (*half.Options.model_fields, *LIMITS)
            raise OptionError(f"--set {named}: unknown option of family '{family}'{suggestion(option, known)}")
        else:
            options[option] = number_of(value, topics, named)
    try:
        Limits(**limits)
        make_options(family, options)
    except OptionError as error:
        varied = dict.fromkeys((option for option in spans if option not in ("topics", "start_topics")), "--vary")
        given_by = {**varied, **dict.fromkeys(asked.settings.get(family, {}), "--set")}
        raise OptionError(error.spelled(lambda option: _as_given(option, family, given_by))) from None
    return Cell(name, family, topics, start, options, limits, asked.restarts, warm)


def peer_cells(asked: Asked) -> list[PeerCell]:
    """List the fits of other libraries, one a library and number of topics, or number that it starts from.

    Parameters
    ----------
    asked : Asked
        What is asked for.

    Returns
    -------
    list of PeerCell
        In the order in which they are fitted.

    Raises
    ------
    OptionError
        An option is unknown or out of range.
    """
    cells: list[PeerCell] = []
    for peer in asked.peers:
        if peer not in FINDING:
            cells += [_peer_cell(asked, peer, topics, topics, f"{peer}-{topics}") for topics in asked.topics]
        elif peer in STARTING:
            cells += [_peer_cell(asked, peer, None, start, f"{peer}-from-{start}") for start in asked.start_topics]
        else:
            cells.append(_peer_cell(asked, peer, None, 1, peer))
    return cells


def _peer_cell(asked: Asked, peer: str, topics: int | None, start: int, name: str) -> PeerCell:
    known = {**PEER_OPTIONS, **(SAMPLING if peer in SAMPLERS else {})}
    priors = {**PRIORS, "alpha": ALPHA} if peer in FINDING else PRIORS
    options: dict[str, Any] = {**priors, "iterations": asked.iterations, "samples": 0, "sample_every": 0}
    options.update({name: getattr(asked, name) for name in SAMPLING if name in known})
    for option, value in asked.settings.get(peer, {}).items():
        named, kind = f"{peer}.{option}", known.get(option)
        if kind is None:
            raise OptionError(f"--set {named}: unknown option of '{peer}'{suggestion(option, known)}")
        number = number_of(value, topics, named)
        kinds = (int,) if kind is int else (int, float)
        if type(number) not in kinds or (kind is float and not number > 0):
            raise OptionError(f"--set {named}: expected {KINDS[kind]}, found {value!r}")
        options[option] = number
    try:
        Limits(**{name: options[name] for name in ("iterations", "samples", "sample_every")}).sampled(1)
    except OptionError as error:
        given_by = dict.fromkeys(asked.settings.get(peer, {}), "--set")
        raise OptionError(error.spelled(lambda option: _as_given(option, peer, given_by))) from None
    return PeerCell(name, peer, topics, start, options)


def _as_given(option: str, owner: str, given_by: Mapping[str, str]) -> str:
    """Name an option as it was given: ``--set lda.alpha``, or ``--alpha``."""
    return f"{given_by[option]} {owner}.{option.replace('_', '-')}" if option in given_by else flag_of(option)


def all_families() -> tuple[str, ...]:
    """Return all families of topics over words that take nothing else of documents, the default."""
    found = (name for name in family_names() if load_family(name).corpus_kind == DOCUMENTS)
    return tuple(
        name
        for name in found
        if not any(document_parts(load_family(name).shard_model).values()) and fits_by_itself(name)
    )


def labelled_families() -> tuple[str, ...]:
    """Return all families that take labels, the default on unseen documents."""
    return tuple(name for name in family_names() if load_family(name).shard_model.uses_labels and fits_by_itself(name))


def fits_by_itself(family: str) -> bool:
    """Tell whether a family asks for no option but the number of topics."""
    fields = load_family(family).Options.model_fields
    return not any(field.is_required() for name, field in fields.items() if name != "topics")


def require_comparable(corpus: Corpus, asked: Asked) -> None:
    """Refuse a corpus that a family does not take, and one of vectors.

    Parameters
    ----------
    corpus : Corpus
        What would be fitted.
    asked : Asked
        By which families.

    Raises
    ------
    MismatchError
        A family takes another kind of corpus, or there are no tokens to hold out.
    """
    for name in (*asked.families, *([] if asked.start_from is None else [asked.start_from])):
        require_corpus(name, corpus)
    if corpus.holds != DOCUMENTS:
        raise MismatchError(
            f"{corpus.url}: a corpus of vectors; families are compared by held-out tokens, which vectors do not have: "
            "fit each, and score it with `collapsium evaluate RUN --unseen CORPUS`"
        )
