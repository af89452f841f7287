"""Options that the families of collapsed topics share, among them seeded topics: names and words with a raised prior.

Topic k has the parameters b_w + s_kw, where s_kw is its strength times the tokens of seed word w in the corpus. The
pseudo-counts s_kw are added to the rows and never removed, so updates need no change. Counts in single
precision would be lost beside large ones, which are therefore apart: updates add them to the counts of their words.
"""

from __future__ import annotations

import os
import reprlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.io.encodings import parse_toml, read_toml_text
from collapsium.storage.runs.topic_names import clean_name
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState
from collapsium.workers.families.family import Summary
from collapsium.workers.families.word_weights import WeightedOptions
from collapsium.workers.kernels.cvb.active import EXACT_TOKENS
from collapsium.workers.options import Accepts, Formerly, complaint, require_named

GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)
MAX_STRENGTH = 1e6
# Largest strength of seeds that lie in the rows: up to here, rows have no larger numbers than without seeds
MAX_TOGETHER = 1.0


class SeededTopic(BaseModel):
    """A topic with words that it is to have."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str  # Its name
    words: Annotated[tuple[str, ...], Field(min_length=1)]  # Its seed words
    # Pseudo-counts of each seed word, as a multiple of the word's tokens in the corpus
    strength: Annotated[float, Field(gt=0, le=MAX_STRENGTH)] = 1.0

    @field_validator("name")
    @classmethod
    def _is_clean(cls, name: str) -> str:
        if not name or clean_name(name) != name:
            raise ValueError(f"expected a name in one line of at most 100 characters, found {name!r}")
        return name

    @field_validator("words", mode="before")
    @classmethod
    def _once_each(cls, words: object) -> object:
        if not isinstance(words, Sequence) or isinstance(words, str):
            raise ValueError(f"expected a list of words, found {reprlib.repr(words)}")
        if not words or not all(isinstance(word, str) for word in words):
            raise ValueError(f"expected one word or more, found {reprlib.repr(words)}")
        return tuple(dict.fromkeys(words))


def _topic(fields: object) -> SeededTopic:
    if not isinstance(fields, Mapping):
        raise ValueError(
            f"expected a table of names and words, or the name of a TOML file with one, found {reprlib.repr(fields)}"
        )
    try:
        return SeededTopic.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] else "words"
        reason = f"{key}: {complaint(first)}"
        if first["type"] == "extra_forbidden":
            reason = f"unknown key {key!r}{suggestion(key, SeededTopic.model_fields)}"
        elif first["type"] == "missing":
            reason = f"the key {key!r} is required"
        raise ValueError(f"topic {str(fields.get('name', ''))!r}: {reason}") from None


def _distinct_topics(value: object) -> tuple[SeededTopic, ...]:
    """Return the seeded topics of a table of lists of words or of tables, by name, or of a list of tables."""
    if isinstance(value, Mapping):
        tables = (
            {**(seeds if isinstance(seeds, Mapping) else {"words": seeds}), "name": n} for n, seeds in value.items()
        )
        topics = tuple(_topic(table) for table in tables)
    elif isinstance(value, Sequence):
        topics = tuple(topic if isinstance(topic, SeededTopic) else _topic(topic) for topic in value)
    else:
        raise ValueError(f"expected a table of names and words, found {reprlib.repr(value)}")
    names = [topic.name for topic in topics]
    if len(set(names)) != len(names):
        raise ValueError(f"expected each name once, found {names}")
    return topics


class SeededOptions(WeightedOptions):
    """Options of families whose topics may be seeded, and whose words may be weighted."""

    topics: int
    seeds: Annotated[tuple[SeededTopic, ...], Accepts(str | os.PathLike[str] | Mapping[str, Any])] = Field(
        (),
        description="words of seeded topics, whose priors in these topics are raised: a TOML file in which each topic "
        'is a list, such as space = ["orbit", "nasa"], or a table [space] with the keys words and strength (the '
        "pseudo-counts of each word as a multiple of its tokens; 1 by default). Seeded topics come first, in the order "
        "of the file",
    )

    @field_validator("seeds", mode="before")
    @classmethod
    def _as_topics(cls, value: object, info: ValidationInfo) -> tuple[SeededTopic, ...]:
        if isinstance(value, (str, os.PathLike)):
            require_named(info)
            path = os.fspath(value)
            try:
                table = parse_toml(read_toml_text(path))
            except FileNotFoundError:
                raise ValueError(f"expected a TOML file; there is no {path}") from None
            except OSError as error:
                raise ValueError(f"{path} cannot be read ({error.strerror})") from None
            except ValueError as error:
                raise ValueError(f"{path}: expected TOML ({error})") from None
            try:
                return _distinct_topics(table)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        return _distinct_topics(value)

    @model_validator(mode="after")
    def _enough_topics(self) -> SeededOptions:
        if len(self.seeds) > self.topics:
            raise OptionError(
                f"expected at most {self.topics} seeded topics, as many as `topics`, found {len(self.seeds)}", "seeds"
            )
        return self

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Names of the first topics."""
        return tuple(topic.name for topic in self.seeds)


def with_seeds(global_state: GlobalStateT, summary: Summary, options: SeededOptions) -> GlobalStateT:
    """Return the first global state of a fit with the pseudo-counts of its seeded topics."""
    if not options.seeds:
        return global_state
    if summary.stochastic or global_state.moments:
        raise OptionError("require the batch schedule, `order` 0, and no parameter of the words in `learn`", "seeds")
    if summary.seeds is None:
        return global_state
    seeds = summary.seeds
    # Pseudo-counts are multiples of what a word's tokens weigh.
    counts = seeds.counts if summary.weights is None else seeds.counts * summary.weights.means[seeds.words]
    strength = np.array([topic.strength for topic in options.seeds])[seeds.topics]
    # Up to the limit of exact sums nothing is rounded.
    apart = bool(((strength > MAX_TOGETHER) & (counts > EXACT_TOKENS)).any())
    after = replace(
        global_state,
        seed_words=seeds.words,
        seed_topics=seeds.topics,
        seed_counts=counts,
        seeds_apart=True if apart and global_state.active else None,
        count_bits=global_state.count_bits if apart else 0,
    )
    if after.active:
        # Totals of active topics are summed from the rows.
        return after
    moments = np.array(after.topic_moments)
    moments[0] += after.pseudo_counts
    return replace(after, topic_moments=moments)


class CollapsedOptions(SeededOptions):
    """Options that the families of collapsed topics share."""

    topics: int
    beta: float
    order: Literal[0, 2]
    responsibilities: Literal["active", "dense"] | None = Field(
        None,
        description="active: each document stores the responsibilities of its active topics, and one background share "
        "for all others; dense: all topics of every pair (default: active with order 0; order 2 is always dense)",
    )
    most_active: int | None = Field(
        None,
        ge=1,
        lt=1 << 31,
        description="largest number of active topics of a document (default: in short documents all of up to 128 "
        "topics, fewer in long documents or with more topics; see 'Sparse responsibilities over active topics' in the "
        "documentation)",
    )
    momentum: float = Field(
        0.8,
        ge=0,
        lt=1,
        description="active responsibilities: extrapolate the word counts by this share of their last change "
        "before each sweep; 0: plain updates",
    )
    inverse_temperature: Annotated[float | None, Formerly("flatten")] = Field(
        None,
        gt=0,
        le=1,
        description="active responsibilities: inverse temperature, the power to which a token's responsibilities are "
        "raised before they are normalised. Values below 1 spread a token over more topics, which predicts short "
        "documents better (default: the fit searches for the value that best predicts training tokens which it holds "
        "out; see 'Initialisation, tempering and momentum' in the documentation)",
    )

    @field_validator("responsibilities")
    @classmethod
    def _dense_second_order(
        cls, responsibilities: Literal["active", "dense"] | None, info: ValidationInfo
    ) -> Literal["active", "dense"] | None:
        if responsibilities == "active" and info.data.get("order") == 2:
            raise ValueError("expected 'dense' with `order` 2; active responsibilities take `order` 0")
        return responsibilities

    @property
    def active(self) -> bool:
        """True if responsibilities are sparse, over each document's active topics."""
        return (self.responsibilities or ("active" if self.order == 0 else "dense")) == "active"

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        applies = "active responsibilities; these are dense"
        return {} if self.active else dict.fromkeys(("most_active", "momentum", "inverse_temperature"), applies)

    @property
    @abstractmethod
    def needs_tables(self) -> bool:
        """True if E[s_k] is summed."""

    @property
    @abstractmethod
    def needs_moments(self) -> bool:
        """True if V[n_kw] and Z[n_kw] are summed."""


class PlainTopicsOptions(CollapsedOptions):
    """Options that LDA and the HDP share."""

    prevalence: str | None = Field(
        None,
        description="formula of fields on which the documents' priors depend, such as '~ party + bs(year, df=5)': "
        "labels, numbers and dates that are stored with the corpus (Dirichlet-multinomial regression; needs the extra "
        "'covariates')",
    )

    @model_validator(mode="after")
    def _prevalence_of_active_topics(self) -> PlainTopicsOptions:
        if self.prevalence is not None and not self.active:
            raise OptionError("takes active responsibilities, with `order` 0", "prevalence")
        return self
