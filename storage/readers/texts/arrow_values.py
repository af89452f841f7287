"""Values of Arrow columns as Python values of few types: texts, numbers, lists, and what the converters refuse.

Dates and times become texts in ISO 8601, with the offset of their zone. Extension types have the meaning of their
specification (https://arrow.apache.org/docs/format/CanonicalExtensions.html). Columns carry an extension type only in
processes that have registered it, and otherwise its name in the metadata of their field.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.readers.texts.values import Unsupported

_NAME, _METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
# Units of pandas' periods that are as long as NumPy's; aliases of releases before 2.2 are in capitals.
_UNITS = {
    "D": "D", "h": "h", "H": "h", "min": "m", "T": "m", "s": "s", "S": "s", "ms": "ms", "L": "ms", "us": "us",
    "U": "us", "ns": "ns", "N": "ns",
}  # fmt: skip

_MEANINGS: dict[str, Callable[[Any], Any]] = {
    "arrow.uuid": lambda value: str(uuid.UUID(bytes=value)),
    "arrow.bool8": bool,
    "arrow.json": json.loads,
}


def values_of(column: pa.Array, field: pa.Field) -> list[Any]:
    """Return the values of a column, None where they are missing.

    Raises an error of `collapsium.storage.corpus.parquet.FAULTS` if a value is damaged or out of range.
    """
    kind, described = column.type, field.metadata or {}
    if isinstance(kind, pa.BaseExtensionType):
        metadata = kind.__arrow_ext_serialize__() if isinstance(kind, pa.ExtensionType) else b""
        return _extension(kind.extension_name, metadata, column.storage)
    if _NAME in described:
        return _extension(described[_NAME].decode(), described.get(_METADATA, b""), column)
    if pa.types.is_dictionary(kind):
        return values_of(column.dictionary_decode(), field.with_type(kind.value_type))
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            column = pc.floor_temporal(column, unit="microsecond")
        return [
            None if time is None else time.isoformat() for time in column.cast(pa.timestamp("us", kind.tz)).to_pylist()
        ]
    if pa.types.is_duration(kind):
        return list(column.cast(pa.duration("us"), safe=kind.unit != "ns").to_pylist())
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        if pa.types.is_time64(kind):
            column = column.cast(pa.time64("us"), safe=False)
        return [None if time is None else time.isoformat() for time in column.to_pylist()]
    if pa.types.is_decimal(kind) and kind.scale <= 0:
        return [None if number is None else int(number) for number in column.to_pylist()]
    if pa.types.is_map(kind) or pa.types.is_struct(kind):
        return _unsupported(column, "a map" if pa.types.is_map(kind) else "an object")
    if _is_list(kind) and not _is_plain(kind.value_field):
        inner = iter(values_of(column.flatten(), kind.value_field))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if length is None else [next(inner) for _ in range(length)] for length in lengths]
    return list(column.to_pylist())


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
                or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))  # fmt: skip


def _is_plain(field: pa.Field) -> bool:
    kind = field.type
    known = (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
             or pa.types.is_floating(kind) or pa.types.is_boolean(kind))  # fmt: skip
    return bool(known) and _NAME not in (field.metadata or {})


def _unsupported(column: pa.Array, name: str) -> list[Unsupported | None]:
    value = Unsupported(name[:100])
    return [value if there else None for there in column.is_valid().to_pylist()]


def _extension(name: str, metadata: bytes, storage: pa.Array) -> list[Any]:
    """Return the values of an extension type, whose Arrow values are `storage`."""
    if name == "pandas.period":
        convert = _beginning_of(metadata)
    elif name in _MEANINGS:
        convert = _MEANINGS[name]
    else:
        return _unsupported(storage, f"a value of type {name}")
    return [None if value is None else convert(value) for value in storage.to_pylist()]


def _beginning_of(metadata: bytes) -> Callable[[Any], Any]:
    """Return a function from the number of a pandas period to its beginning in ISO 8601."""
    try:
        described = json.loads(metadata)
    except ValueError:
        described = None
    freq = str(described.get("freq")) if isinstance(described, Mapping) else "None"
    # Periods of several units, such as 3M, are numbered in units too.
    unit, _, anchor = freq.lstrip("0123456789").partition("-")
    unsupported = Unsupported(f"a period of frequency {freq[:40]!r}")
    if unit in _UNITS:
        return lambda number: _iso(np.array(number, dtype=f"datetime64[{_UNITS[unit]}]"))
    if unit in ("M", "ME") and not anchor:
        return lambda number: _iso(np.array(number, dtype="datetime64[M]"))
    if unit in ("Y", "YE", "A") and (anchor or "DEC") in _MONTHS:
        # The year is named after the calendar year in which it ends.
        after = (_MONTHS.index(anchor or "DEC") + 1) % 12
        return lambda number: _iso(np.array(12 * (number - (after > 0)) + after, dtype="datetime64[M]"))
    if unit in ("Q", "QE") and (anchor or "DEC") in _MONTHS:
        after = (_MONTHS.index(anchor or "DEC") + 1) % 12
        return lambda number: _iso(np.array(3 * number - 12 * (after > 0) + after, dtype="datetime64[M]"))
    if unit == "W" and (anchor or "SUN") in _WEEKDAYS:
        # Week 1 contains 1970-01-01, a Thursday.
        last = _WEEKDAYS.index(anchor or "SUN")
        return lambda number: _iso(np.array(7 * (number - 1) - 3 + (last + 1) % 7, dtype="datetime64[D]"))
    if unit == "B":
        return lambda number: _iso(np.busday_offset("1970-01-01", number, roll="forward"))
    return lambda _: unsupported


def _iso(moment: Any) -> str:
    """Return a moment in ISO 8601, without a time where its unit is a day or longer; years have four digits."""
    unit = "D" if np.datetime_data(moment.dtype)[0] in ("M", "D") else "us"
    value = moment.astype(f"datetime64[{unit}]").item()
    if not isinstance(value, datetime.date):
        raise ValueError(f"date value out of range: {moment}")
    return value.isoformat()
