"""JSON records with a format name, a version and a digest of their contents."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsium.storage.data_types import Json, JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.printable import short

DIGEST = "sha256"
MAX_BYTES = 1 << 26  # Largest record; the manifest of a corpus of 100,000 shards has 45 MB

# Largest number of lists and objects in a record; each takes 2 bytes in the file and 100 in memory
MAX_CONTAINERS = 1 << 22

LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 64) - 1  # Range of integers of 64 bits, signed or unsigned

Model = TypeVar("Model", bound=BaseModel)

_LINE = "\n  "
_text_of_string = json.encoder.encode_basestring
_encoded_value = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode

# Types of fields of records, which may be untrusted. Sums of a few such numbers are finite.
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
Number = Annotated[float, Field(strict=True, ge=-1e300, le=1e300)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Record(BaseModel):
    """A base of records without further fields, which never change."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OpenRecord(BaseModel):
    """A base of records that may have further fields, which later releases add."""

    model_config = ConfigDict(extra="allow")


def canonical(record: JsonObject) -> bytes:
    """Return the canonical text of a record: sorted keys, shortest exact floats, indented by two spaces."""
    return _joined(_members(record))


def digest_of(record: JsonObject) -> str:
    """Return the SHA-256 of a record's canonical text."""
    return hashlib.sha256(canonical(record)).hexdigest()


def dump(record: JsonObject) -> bytes:
    """Return the text of a record with its digest, by which damage is found."""
    # The text of each member is made once.
    members = _members(record)
    return _joined({**members, **_members({DIGEST: hashlib.sha256(_joined(members)).hexdigest()})})


def _members(record: JsonObject) -> dict[str, str]:
    """Return the canonical text of each member of a record, by key."""
    return {key: f"  {_text_of_string(key)}: {_text(value, _LINE)}" for key, value in record.items()}


def _text(value: Json, line: str) -> str:
    """Return the text of a value, indented as by `json`, in half of the time that `json` takes."""
    if type(value) is str:
        return _text_of_string(value)
    # The encoder takes longer for a single number, and refuses infinities.
    if type(value) is int or (type(value) is float and -math.inf < value < math.inf):
        return repr(value)
    if not value or not isinstance(value, dict | list | tuple):
        return _encoded_value(value)
    inner = f"{line}  "
    if isinstance(value, dict):
        members = [f"{_text_of_string(key)}: {_text(value[key], inner)}" for key in sorted(value)]
        return f"{{{inner}{f',{inner}'.join(members)}{line}}}"
    return f"[{inner}{f',{inner}'.join([_text(item, inner) for item in value])}{line}]"


def _joined(members: Mapping[str, str]) -> bytes:
    """Return the canonical text of a record of some members."""
    return ("{\n" + ",\n".join(members[key] for key in sorted(members)) + "\n}\n" if members else "{}\n").encode()


def parse_json(data: bytes, path: str, where: str = "", *, max_bytes: int = MAX_BYTES) -> Json:
    """Parse JSON, which may be untrusted, in bounded memory."""
    if len(data) > max_bytes:
        raise DamagedError(path, f"expected at most {max_bytes:,} bytes, found {len(data):,}", where)
    if data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise DamagedError(path, f"expected at most {MAX_CONTAINERS:,} lists and objects", where)
    try:
        value: Json = json.loads(data, parse_int=_integer, parse_float=_number, parse_constant=_number)
        return value
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, f"expected JSON ({error})", where) from None


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else MOST_INTEGER + 1
    if not LEAST_INTEGER <= value <= MOST_INTEGER:
        raise ValueError(f"a whole number of {len(text)} digits, which does not fit into 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError(f"expected a finite number, found {text[:20]}")
    return value


def check(model: type[Model], record: object, path: str, where: str = "") -> Model:
    """Check a parsed record against its pydantic model."""
    try:
        return model.model_validate(record)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        place = ", ".join(text for text in (where, f"field '{name}'" if name else "") if text)
        raise DamagedError(path, first["msg"], place) from None


def numbers_of_names(names: Iterable[str], digits: int, suffix: str = "") -> list[int]:
    """Return the numbers of files or folders that are named by numbers, ascending."""
    form = re.compile(f"[0-9]{{{digits},18}}{re.escape(suffix)}")
    numbers = {name: int(name.removesuffix(suffix)) for name in names if form.fullmatch(name)}
    return sorted(number for name, number in numbers.items() if name == f"{number:0{digits}d}{suffix}")


def read_record(folder: Folder, name: str, kind: str, version: int, oldest: int = 1) -> JsonObject:
    """Read a JSON record and check its format, version and digest."""
    path = f"{folder.url}/{name}"
    return checked(parse_record(folder.read(name, MAX_BYTES), path, kind, version, oldest), path)


def parse_record(data: bytes, path: str, kind: str, version: int, oldest: int = 1) -> JsonObject:
    """Parse a record and check its format and version, but not its digest; see `read_record`."""
    record = parse_json(data, path)
    if not isinstance(record, dict) or record.get("format") != kind:
        raise DamagedError(path, f"expected {kind!r}", "field 'format'")
    written_version = record.get("version")
    if type(written_version) is not int or not oldest <= written_version <= version:
        known = f"versions {oldest} to {version}" if oldest < version else f"version {version}"
        raise DamagedError(path, f"{short(written_version)} is unknown; this release reads {known}", "field 'version'")
    return record


def checked(record: JsonObject, path: str) -> JsonObject:
    """Return a record without its digest after checking that."""
    if record["version"] == 1:
        return record
    rest = {name: value for name, value in record.items() if name != DIGEST}
    try:
        digest = digest_of(rest)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, f"expected JSON ({error})") from None
    if digest != record.get(DIGEST):
        raise DamagedError(path, "the contents do not match the digest in the file; the file is damaged")
    return rest
