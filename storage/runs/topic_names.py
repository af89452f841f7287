"""Names of a model's topics: `names.json`, beside the model's record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, field_validator

from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Record, check, dump, read_record
from collapsium.storage.runs.model import ModelRecord
from collapsium.storage.runs.summary import digest_of_model

RECORD = "names.json"
KIND = "collapsium-names"
VERSION = 2  # The first version; records of version 1 have no digest
MAX_LETTERS = 100  # Characters of a name; the rest is cut


def clean_name(text: str) -> str:
    """Return a text as a name: one line without control characters, cut to `MAX_LETTERS`; it may be empty."""
    letters = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(letters.split())[:MAX_LETTERS].strip()


class TopicName(Record):
    """The name of a topic."""

    id: Count  # Permanent id of the topic
    name: Annotated[str, Field(min_length=1, max_length=MAX_LETTERS)]  # The name, as `clean_name` returns it
    # Origin: `edit --rename`, a namer, or the words that the topic was seeded with. A namer replaces only names by
    # namers alone.
    by: Literal["hand", "namer", "seed"]
    # Digest of a request, which releases wrote that called commands as namers
    request: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""

    @field_validator("name")
    @classmethod
    def _is_clean(cls, name: str) -> str:
        if clean_name(name) != name:
            raise ValueError("expected a name in one line, without control characters")
        return name


class NamesRecord(Record):
    """The fields of `names.json`; ``model`` is the digest of the model's record."""

    format: str = KIND
    version: int = VERSION
    model: str
    names: tuple[TopicName, ...]


def write_names(folder: Folder, record: ModelRecord, names: Iterable[TopicName]) -> None:
    """Write the names of a model's topics into its folder, in place of earlier ones."""
    named = NamesRecord(model=digest_of_model(record), names=tuple(sorted(names, key=lambda entry: entry.id)))
    folder.write(RECORD, dump(named.model_dump(mode="json")))


def read_names(folder: Folder, record: ModelRecord) -> dict[int, TopicName]:
    """Read the names of a model's topics."""
    if not folder.exists(RECORD):
        return {}
    path = f"{folder.url}/{RECORD}"
    try:
        names = check(NamesRecord, read_record(folder, RECORD, KIND, VERSION, oldest=VERSION), path)
    except DamagedError as error:
        hint = f"{error.expected}; the model is whole: rename the file, and its topics have no names"
        raise DamagedError(error.path, hint, error.where) from None
    if names.model != digest_of_model(record):
        raise DamagedError(path, "it has the names of another model")
    by_id = {entry.id: entry for entry in names.names}
    if len(by_id) != len(names.names):
        raise DamagedError(path, "expected one name for each topic", "field 'names'")
    return by_id
