"""Options of editing topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from collapsium.pipeline.options import Location, Options, Value
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.topic_names import clean_name

Ids = tuple[int, ...]


def _ids(value: object) -> object:
    """Return ids of topics: numbers, or texts of numbers with commas."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str):
        return tuple(_number(part) for part in value.split(","))
    if isinstance(value, Iterable):
        return tuple(number for part in value for number in _flat(part))
    return value


def _flat(part: object) -> tuple[object, ...]:
    return tuple(_number(text) for text in part.split(",")) if isinstance(part, str) else (part,)


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"expected ids of topics, found {text.strip()!r}")
    return int(text)


def _groups(value: object) -> object:
    """Return groups of ids: a text or a list of ids is one group, and a list of these several."""
    if isinstance(value, str):
        return (_ids(value),)
    if isinstance(value, Iterable):
        parts = list(value)
        if parts and all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
            return (tuple(parts),)
        return tuple(_ids(part) for part in parts)
    return value


def names_by_topic(value: object) -> object:
    """Return names by topic: a mapping, or texts such as ``5=space flight``."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, Iterable):
        return value
    names: dict[int, str] = {}
    for text in value:
        topic, equals, name = str(text).partition("=")
        if not equals:
            raise OptionError(f"expected ID=NAME, found {text!r}")
        if _number(topic) in names:
            raise OptionError(f"topic {topic.strip()} is named twice")
        names[_number(topic)] = name
    return names


class EditOptions(Options):
    """Edits of topics."""

    merge: Annotated[tuple[Ids, ...], BeforeValidator(_groups), Value("ID,ID", note="may be repeated")] = Field(
        (), description="merge these topics into the first of them"
    )
    rename: Annotated[dict[int, str], BeforeValidator(names_by_topic), Value("ID=NAME", note="may be repeated")] = (
        Field({}, description="names of topics by id")
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="location of the training corpus, if it was moved, for the summary of the documents"
    )
    workers: Annotated[int | None, Value("N")] = Field(
        None, ge=1, description="number of threads (default: one for each core)"
    )

    @property
    def removed(self) -> frozenset[int]:
        """Topics that are merged into others."""
        return frozenset(topic for group in self.merge for topic in group[1:])

    def require_topics(self, known: Collection[int]) -> None:
        """Check the edits by the topics of the model."""
        seen: set[int] = set()
        for ids in self.merge:
            if len(ids) < 2:
                raise OptionError(f"expected two topics or more, found {','.join(map(str, ids))}", "merge")
            for topic in ids:
                _require(topic, known, "merge")
                if topic in seen:
                    same = ids.count(topic) > 1
                    reason = "a topic cannot be merged with itself" if same else "each topic may be merged once"
                    raise OptionError(f"topic {topic} is named twice; {reason}", "merge")
                seen.add(topic)
        for topic, text in self.rename.items():
            _require(topic, known, "rename")
            if topic in self.removed:
                raise OptionError(f"topic {topic} is merged into another", "rename")
            if not clean_name(text):
                raise OptionError(f"expected a name of topic {topic}, found {text!r}", "rename")


def _require(topic: int, known: Collection[int], option: str) -> None:
    if topic not in known:
        ids = ", ".join(map(str, sorted(known)[:20])) + (", ..." if len(known) > 20 else "")
        raise OptionError(f"the model has no topic {topic} with tokens; expected one of {ids}", option)
