"""The grid of the bench of shapes, read from TOML: contestants, and blocks of corpora, numbers of topics and contestants."""

import fnmatch
import itertools
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tests.benchmarks.peers import PEERS

DEFAULT = Path(__file__).with_name("grid.toml")
SAMPLE_EVERY = 10
"""Iterations between two samples of a peer that are averaged."""


class Contestant(BaseModel):
    """A family of ours or a peer, with its options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: str = ""
    peer: str = ""
    iterations: int = Field(200, ge=1)
    samples: int = Field(0, ge=0)
    sample_every: int = Field(SAMPLE_EVERY, ge=1)
    options: dict[str, Any] = {}
    vary: dict[str, list[Any]] = {}
    of: str = ""
    """For an ensemble: the contestant whose single fit gives the speed of the members."""
    within: str = ""
    """For an ensemble: the contestant in whose time it is to end."""

    @model_validator(mode="after")
    def _check(self):
        if bool(self.family) == bool(self.peer):
            raise ValueError("expected one of family and peer")
        if self.peer and self.peer not in PEERS:
            raise ValueError(f"no peer {self.peer!r}; there are {', '.join(PEERS)}")
        if bool(self.of) != bool(self.within) or (self.of and self.peer):
            raise ValueError("an ensemble is of a family, and has both of and within")
        return self


class Block(BaseModel):
    """Rows that are made together, on some corpora or on all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topics: list[int] = Field(min_length=1)
    contestants: list[str] = Field(min_length=1)
    corpora: list[str] = []


class Grid(BaseModel):
    """The grid."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(1, ge=1)
    limit: float = Field(7200.0, gt=0)
    contestants: dict[str, Contestant]
    blocks: list[Block]

    @model_validator(mode="after")
    def _check(self):
        named = {name for block in self.blocks for name in block.contestants}
        named |= {
            name for contestant in self.contestants.values() for name in (contestant.of, contestant.within) if name
        }
        for name in sorted(named - set(self.contestants)):
            raise ValueError(f"no contestant {name!r}; there are {', '.join(self.contestants)}")
        return self

    @staticmethod
    def read(path):
        """Read a grid; an error says in one line what is wrong with it."""
        try:
            return Grid.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise SystemExit(f"error: {path}: {error.strerror}") from None
        except tomllib.TOMLDecodeError as error:
            raise SystemExit(f"error: {path}: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise SystemExit(f"error: {path}: {where}{': ' if where else ''}{first['msg']}") from None


@dataclass(frozen=True)
class Cell:
    """One fit of the grid.

    Attributes
    ----------
    corpus : str
        Name of the corpus.
    topics : int
        Number of topics K.
    name : str
        The contestant, with the values of its varied options.
    contestant : Contestant
        It, with these values among its options.
    number : int
        Number of the round.
    """

    corpus: str
    topics: int
    name: str
    contestant: Contestant
    number: int = 0

    @property
    def ours(self):
        """Return whether the contestant is a family of Collapsium."""
        return bool(self.contestant.family)

    def key(self, digest):
        """Return the key of its record: the corpus's digest, and all options."""
        options = self.contestant.model_dump(exclude={"vary"})
        return [self.corpus, digest, self.topics, self.name, json.dumps(options, sort_keys=True), self.number]


def variants(name, contestant):
    """Yield a contestant's name and options for each combination of the values of its varied options."""
    variants = []
    for values in itertools.product(*contestant.vary.values()):
        varied = dict(zip(contestant.vary, values, strict=True))
        text = " ".join(f"{option}={value_text(value)}" for option, value in varied.items())
        owner = contestant.family or contestant.peer
        variant = contestant.model_copy(update={"options": {**contestant.options, **varied}, "vary": {}})
        variants.append((f"{owner} {text}" if varied else name, variant))
    return variants


def value_text(value):
    """Return an option's value as text."""
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def flag_value(value):
    """Return an option's value as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Choice:
    """The part of the grid that a command runs; a field that is empty chooses all.

    Attributes
    ----------
    corpora, topics : tuple
        Names of corpora, and numbers of topics.
    contestants : tuple of str
        Names of contestants, or patterns such as ``lda*``.
    """

    corpora: tuple = ()
    topics: tuple = ()
    contestants: tuple = ()

    def has(self, cell):
        """Return whether a cell is chosen."""
        return (
            (not self.corpora or cell.corpus in self.corpora)
            and (not self.topics or cell.topics in self.topics)
            and (
                not self.contestants
                or any(fnmatch.fnmatchcase(cell.name, contestant) for contestant in self.contestants)
            )
        )


def cells_of(grid, corpora, choice):
    """Return the cells in the order in which they are run, each once.

    Numbers of topics that are chosen and in no block replace the blocks' numbers.
    """
    known = {count for block in grid.blocks for count in block.topics}
    others = tuple(count for count in choice.topics if count not in known)
    cells = {}
    for number in range(grid.rounds):
        for block in grid.blocks:
            for topics, corpus in itertools.product([*block.topics, *others], block.corpora or corpora):
                if corpus not in corpora:
                    continue
                applicable = [
                    contestant for name in block.contestants for contestant in variants(name, grid.contestants[name])
                ]
                # Rounds alternate, so that noise of a shared machine affects all alike; ensembles need the results of the others.
                single = [variant for variant in applicable if not variant[1].within]
                ordered = single[:: -1 if number % 2 else 1] + [variant for variant in applicable if variant[1].within]
                for name, contestant in ordered:
                    cell = Cell(corpus, topics, name, contestant, number)
                    if choice.has(cell):
                        cells.setdefault((corpus, topics, name, number), cell)
    return list(cells.values())


def with_varied(grid, name, vary):
    """Return a grid with a single block, in which a contestant's options vary over some values."""
    if name not in grid.contestants:
        raise SystemExit(
            f"error: --vary needs one --contestants NAME of the grid; there are {', '.join(grid.contestants)}"
        )
    contestant = grid.contestants[name].model_copy(update={"vary": vary})
    topics = sorted({count for block in grid.blocks for count in block.topics})
    return grid.model_copy(
        update={"contestants": {name: contestant}, "blocks": [Block(topics=topics, contestants=[name])]}
    )


def with_settings(grid, rounds, limit, iterations):
    """Return a grid with other rounds, another limit, or the same iterations for all, where these are given."""
    changes = {name: value for name, value in (("rounds", rounds), ("limit", limit)) if value is not None}
    if iterations is not None:
        # not more samples than iterations allow
        changes["contestants"] = {
            name: contestant.model_copy(
                update={
                    "iterations": iterations,
                    "samples": min(contestant.samples, -(-iterations // contestant.sample_every)),
                }
            )
            for name, contestant in grid.contestants.items()
        }
    return grid.model_copy(update=changes)
