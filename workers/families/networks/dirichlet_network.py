"""Networks of Dirichlet or Pitman-Yor vectors that a user defines, with sampled or expected tables.

Each kind of vectors names its parents: nu_j ~ Dir(alpha) without, nu_j ~ PDP(a, b, sum_l rho_lj nu_l) with, and rho_j ~
Dir(mixing) where there are several (Buntine, Du and Nurmi 2010). z ~ nu_j of the vector that a segment draws from,
phi_k ~ Dir(beta/W, ..., beta/W).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.io.encodings import parse_toml, read_toml_text
from collapsium.workers.families.family import FamilyOptions
from collapsium.workers.families.networks.family import NetworkOptions
from collapsium.workers.families.networks.graph import CORPUS, DOCUMENT, LABEL, SEGMENT, Plan
from collapsium.workers.families.networks.sampled import SampledNetwork
from collapsium.workers.families.networks.variational import ExpectedNetwork
from collapsium.workers.options import Accepts, require_named

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import LabelTable


class ExpectedDirichletNetwork(ExpectedNetwork):
    """Network that a user defines, with expected tables; vectors may be of labels."""

    uses_labels = True


SCOPES = {"corpus": CORPUS, "label": LABEL, "document": DOCUMENT, "segment": SEGMENT}
PARENT = re.compile(r"([\w-]{1,200})(?:\[(-?[0-9]{1,9})\])?")
MAX_KINDS, MAX_PARENTS = 100, 100  # Kinds of a network, and parents of a kind, at most; papers have three or four


class Vectors(FamilyOptions, title="a kind of vectors"):
    """A kind of probability vectors, and their parents."""

    over: Literal["corpus", "label", "document", "segment"] = Field(
        description="the units that have a vector each: corpus, label, document or segment"
    )
    field: str | None = Field(None, description="vectors over labels: the field of labels")
    every: int = Field(
        1, ge=1, lt=1 << 31, description="vectors over segments: number of consecutive segments that share one vector"
    )
    parents: tuple[str, ...] = Field(
        (),
        max_length=MAX_PARENTS,
        description="names of the parents, which are other kinds of vectors; NAME[-1] is the vector of the "
        "preceding segment, such as section[-1]",
    )
    otherwise: tuple[str, ...] = Field(
        (),
        max_length=MAX_PARENTS,
        description="parents to use if one of `parents` does not exist: the first segment has no preceding one",
    )
    mixing: float = Field(
        1.0, gt=0, le=1e9, description="Dirichlet parameter of each parent's weight, if a vector has several parents"
    )


def read_network(network: object) -> dict[str, object]:
    """Read a network: a mapping, the name of a TOML file, or TOML itself."""
    if isinstance(network, Mapping):
        return dict(network)
    if not isinstance(network, str):
        raise ValueError(f"expected a TOML file, or a table for each kind of vectors, found {network!r}")
    text = network
    if "\n" not in network and "[" not in network:
        try:
            text = read_toml_text(network)
        except FileNotFoundError:
            raise ValueError(f"expected a TOML file; there is no {network}") from None
        except (OSError, ValueError) as error:
            raise ValueError(f"{network} cannot be read ({error})") from None
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ValueError(f"{'' if text is network else f'{network}: '}expected TOML ({error})") from None


def fields_of(network: Mapping[str, Vectors]) -> tuple[str, ...]:
    """Return the fields of labels that a network has vectors for."""
    return tuple(
        sorted({vectors.field for vectors in network.values() if vectors.over == "label" and vectors.field is not None})
    )


def check_network(network: Mapping[str, Vectors]) -> None:
    """Check the kinds of a network and their parents."""
    if not network:
        raise ValueError("expected at least one kind of vectors")
    if len(network) > MAX_KINDS:
        raise ValueError(f"expected at most {MAX_KINDS} kinds of vectors, found {len(network):,}")
    network = ordered(network)
    names = list(network)
    for number, (name, vectors) in enumerate(network.items()):
        if (vectors.over == "label") != (vectors.field is not None):
            raise ValueError(f"'{name}': vectors over labels name their field, and no others do")
        if vectors.every > 1 and vectors.over != "segment":
            raise ValueError(f"'{name}': 'every' applies only to vectors over segments")
        for text in (*vectors.parents, *vectors.otherwise):
            _check_parent(network, names[:number], name, text)


def source_of_words(network: Mapping[str, Vectors], words: str | None) -> str:
    """Return the kind of vectors that words are drawn from."""
    chosen = list(network)[-1] if words is None else words
    if chosen not in network:
        raise ValueError(f"expected a kind of vectors, found {chosen!r}{suggestion(chosen, network)}")
    if SCOPES[network[chosen].over] < DOCUMENT:
        raise ValueError(f"expected vectors over documents or segments; the vectors of '{chosen}' are over more")
    return chosen


def ordered(network: Mapping[str, Vectors]) -> dict[str, Vectors]:
    """Return kinds with parents before children, and else by name, as records of runs do not store their order."""
    left = sorted(network)
    in_order: dict[str, Vectors] = {}
    above = {name: {parsed(text)[0] for text in (*network[name].parents, *network[name].otherwise)} for name in left}
    while left:
        able = (name for name in left if not above[name] & set(left) - {name})
        name = next(able, left[0])
        in_order[name] = network[name]
        left.remove(name)
    return in_order


def _check_parent(network: Mapping[str, Vectors], before: list[str], name: str, text: str) -> None:
    parent, lag = parsed(text)
    if parent not in network:
        raise ValueError(f"'{name}': unknown parent '{parent}'{suggestion(parent, network)}")
    if lag > 0 or (lag == 0 and parent == name) or (parent != name and parent not in before):
        raise ValueError(
            f"'{name}': '{text}' cannot be a parent; expected a kind that does not depend on it, or {name}[-1]"
        )
    child, above = network[name], network[parent]
    if SCOPES[above.over] > SCOPES[child.over] or above.over == child.over == "label":
        raise ValueError(f"'{name}': a vector over a {child.over} cannot depend on one over a {above.over}")
    if lag and not (child.over == above.over == "segment"):
        raise ValueError(f"'{name}': '{text}': only vectors over segments have an order")
    if above.over == "segment" and (child.every < above.every and above.every % child.every):
        raise ValueError(
            f"'{name}': every {above.every} segments of '{parent}' are not a multiple of its {child.every}"
        )
    if above.over == "segment" and child.every > above.every and not lag:
        raise ValueError(f"'{name}': its vectors are over more segments than the vectors of '{parent}'")


def parsed(text: str) -> tuple[str, int]:
    """Read ``name`` or ``name[-1]``; raise `ValueError` if it is neither."""
    match = PARENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"'{text}' cannot be a parent; expected a name, or a name and an earlier place, as in section[-1]"
        )
    return match[1], int(match[2] or 0)


def plan_of(network: Mapping[str, Vectors], words: str, table: LabelTable | None) -> Plan:
    """Return the plan of a checked network."""
    network = ordered(network)
    names = list(network)
    kinds, links, mixing = [], [], []
    for number, (name, vectors) in enumerate(network.items()):
        column = -1
        if vectors.field is not None:
            known = () if table is None else table.fields
            if vectors.field not in known:
                raise OptionError(f"'{name}': the corpus has no labels of the field '{vectors.field}'", "network")
            column = known.index(vectors.field)
        kinds.append([SCOPES[vectors.over], vectors.every, column])
        for otherwise, parents in enumerate((vectors.parents, vectors.otherwise)):
            for text in parents:
                parent, lag = parsed(text)
                links.append([number, names.index(parent), lag, otherwise])
                mixing.append(vectors.mixing)
    return Plan(
        np.array(kinds, dtype=np.int64),
        np.array(links, dtype=np.int64).reshape(-1, 4),
        np.array(mixing, dtype=np.float64),
        names.index(words),
        table.packed() if table is not None and fields_of(network) else None,
    )


class DirichletNetworkOptions(NetworkOptions, title="network of Dirichlet or Pitman-Yor vectors that you define"):
    """Options of the family."""

    network: Annotated[dict[str, Vectors], Accepts(str | Mapping[str, Mapping[str, Any]])] = Field(
        description="TOML file with one table for each kind of vectors, and in it the keys over (corpus, label, "
        'document or segment), parents (a list, such as ["document", "section[-1]"]) and otherwise (the parents to use '
        "if one of these does not exist)"
    )
    words_from: str | None = Field(
        None,
        description="kind of vectors from which a token's topic is drawn (default: the last)",
        validate_default=True,
    )

    @field_validator("network", mode="before")
    @classmethod
    def _read(cls, network: object, info: ValidationInfo) -> Mapping[str, object]:
        if isinstance(network, str):
            require_named(info)
        return read_network(network)

    @field_validator("network")
    @classmethod
    def _consistent(cls, network: dict[str, Vectors]) -> dict[str, Vectors]:
        check_network(network)
        return network

    @field_validator("words_from")
    @classmethod
    def _last(cls, words_from: str | None, info: ValidationInfo) -> str | None:
        # The network is missing if it was refused.
        network = info.data.get("network")
        return source_of_words(network, words_from) if network else words_from

    @property
    def labels(self) -> tuple[str, ...]:
        """Fields of labels that have vectors."""
        return fields_of(self.network)

    @property
    def takes_labels(self) -> bool:
        """True if there are vectors over labels."""
        return bool(self.labels)

    @property
    def takes_segments(self) -> bool:
        """True if there are vectors over segments."""
        return any(vectors.over == "segment" for vectors in self.network.values())

    def plan(self, labels: LabelTable | None) -> Plan:
        """Return the plan of the network; raise `OptionError` if the corpus has no labels of a field."""
        return plan_of(self.network, source_of_words(self.network, self.words_from), labels)


class DirichletNetwork(SampledNetwork):
    """Network that a user defines; vectors may be of labels."""

    variational = ExpectedDirichletNetwork
    Options = DirichletNetworkOptions
    uses_labels = True


class SegmentedLda(SampledNetwork):
    """Segmented topic model."""

    class Options(NetworkOptions, title="segmented topic model: segments vary around their document"):
        """Options of the family."""

        def plan(self, labels: LabelTable | None) -> Plan:
            """Return documents, and segments below them."""
            return Plan(
                kinds=np.array([[DOCUMENT, 1, -1], [SEGMENT, 1, -1]]),
                links=np.array([[1, 0, 0, 0]]),
                link_mixing=np.ones(1),
                word_kind=1,
            )


class SequentialLda(SampledNetwork):
    """Sequential latent Dirichlet allocation."""

    class Options(NetworkOptions, title="sequential LDA: each segment varies around the one before it"):
        """Options of the family."""

        def plan(self, labels: LabelTable | None) -> Plan:
            """Return documents, and segments below the segment before them or, the first, below the document."""
            return Plan(
                kinds=np.array([[DOCUMENT, 1, -1], [SEGMENT, 1, -1]]),
                links=np.array([[1, 1, -1, 0], [1, 0, 0, 1]]),
                link_mixing=np.ones(2),
                word_kind=1,
            )
