"""Decode text: by its byte order mark, by a named encoding, or as UTF-8."""

from __future__ import annotations

import codecs
import io
from typing import IO

from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import ByteStream

# Byte order marks, the longer ones first, and the encodings that drop them
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)

SAVE_AS_UTF8 = "save it as UTF-8"
NAME_IT = "name its encoding (`encoding`, such as cp1252)"
_INVALID = "collapsium.invalid"
_SIGN = "\udcff"  # Placeholder of bytes that an encoding does not have; in UTF-8 it becomes the invalid byte FF

RECODED = 1 << 18  # characters that are recoded at once


def marked_encoding(head: bytes) -> str | None:
    """Return the encoding of a byte order mark; None without one."""
    return next((encoding for mark, encoding in MARKS if head.startswith(mark)), None)


def checked_encoding(name: str | None) -> str | None:
    """Return Python's name of an encoding; raise `OptionError` if there is none of this name."""
    if name is None:
        return None
    try:
        "a".encode(name).decode(name)
        standard = codecs.lookup(name).name
    except (LookupError, UnicodeError, ValueError):
        raise OptionError(
            f"expected an encoding of text such as cp1252, shift_jis or utf-16, found {name!r}", "encoding"
        ) from None
    return standard


def decode_text(data: bytes, encoding: str | None = None) -> str:
    """Return a text; a byte order mark comes before the named encoding, and UTF-8 is the default."""
    return data.decode(marked_encoding(data[:4]) or encoding or "utf-8")


class Recoded(ByteStream):
    """A file of another encoding as UTF-8; bytes that the encoding does not have stay invalid bytes."""

    def __init__(self, handle: IO[bytes], encoding: str) -> None:
        self._handle, self._left = handle, b""
        self._text = io.TextIOWrapper(handle, encoding, _INVALID, newline="")

    def take(self, count: int) -> bytes:
        """Return at most `count` bytes."""
        if not self._left:
            self._left = self._text.read(RECODED).encode("utf-8", "surrogateescape")
        data, self._left = self._left[:count], self._left[count:]
        return data

    def close(self) -> None:
        """Close the file as well."""
        if not self.closed:
            self._text.close()
        super().close()


def _invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _SIGN, error.end


codecs.register_error(_INVALID, _invalid)
