"""Recognise files by their first bytes, and decompress them with libraries that are part of every installation.

fsspec would choose by the file's name and by the installed packages, so that two workers could read the same file
differently.
"""

from __future__ import annotations

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa

from collapsium.storage.errors import InputError
from collapsium.storage.io.file import ByteStream
from collapsium.storage.units import size

HEAD = 4096  # Number of bytes that are inspected
BUFFER = 1 << 20  # bytes
# Beginnings of the first block of a bzip2 stream, and of the end of an empty one
_BZ2_BLOCK, _BZ2_END = b"1AY&SY", b"\x17rE8P\x90"

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"]\0\0", "lzma"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x1f\x9d", "compress (.Z)"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"Rar!\x1a\x07", "RAR"),
)
_NAMES = {
    ".gz": "gzip", ".tgz": "gzip", ".bz2": "bz2", ".tbz2": "bz2", ".xz": "xz", ".txz": "xz", ".lzma": "lzma",
    ".zst": "zstd", ".lz4": "lz4", ".zip": "zip",
}  # fmt: skip
PACKED = tuple(_NAMES)  # Endings of the names of compressed files

_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, ValueError, RuntimeError)
# Beginnings of files that are not text, and what they are
_BINARY = (
    (b"PAR1", "a Parquet file (`format` parquet)"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x93NUMPY", "a NumPy array (`format` vectors)"),
    (b"%PDF-", "a PDF document"),
    (b"\x89HDF", "an HDF5 file"),
    (b"ARROW1", "an Arrow file"),
    (b"ORC", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0", "a document of Microsoft Office"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
)


# First bytes of all magic numbers: most texts begin otherwise
_FIRST = frozenset(magic[:1] for magic, _ in (*_MAGIC, *_BINARY)) | {b"B"}


def packing_of(head: bytes) -> str | None:
    """Return the compression that the first bytes of a file show, or None."""
    if head[:1] not in _FIRST:
        return None
    if head.startswith(b"BZh") and head[4:10] in (_BZ2_BLOCK, _BZ2_END):
        return "bz2"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)


def binary_kind(head: bytes) -> str | None:
    """Return what a file is, such as ``a Parquet file``, if its first bytes show that it is not text; else None."""
    if _is_tar(head):
        return "a tar archive"
    if head[:1] not in _FIRST:
        return None
    packing = packing_of(head)
    if packing is not None and packing != "zip":
        return f"compressed ({packing})"
    for magic, kind in _BINARY:
        # A text may begin with the letters of a magic number, but no control characters follow them.
        if head.startswith(magic) and (not magic.isalnum() or any(byte < ord("\t") for byte in head)):
            return kind
    return None


def unpacked(handle: IO[bytes], head: bytes, path: str, limit: Callable[[], int]) -> IO[bytes]:
    """Return the content of a file that may be compressed."""
    kind, name = packing_of(head), path.lower()
    named = next((named for ending, named in _NAMES.items() if name.endswith(ending)), None)
    if kind is None:
        if named is not None:
            fault = "the compressed file is empty, so it was cut short" if not head else (
                f"its name says {named}, but its bytes are not compressed by that; give it a name that fits"
            )  # fmt: skip
            raise InputError(path, fault)
        if _is_tar(head) or name.endswith(".tar"):
            raise InputError(path, f"{_UNPACK_TAR} and name the folder")
        return handle
    if kind == "zip":
        member = _only_member(handle, path)
        if member is None:
            handle.seek(0)
            return handle
        stream: Any = member
    elif kind == "gzip":
        stream = gzip.GzipFile(fileobj=handle)
    elif kind in ("xz", "lzma"):
        stream = _Lzma(handle)
    elif kind in ("bz2", "zstd", "lz4"):
        stream = pa.CompressedInputStream(handle, kind)
    else:
        raise InputError(path, f"is compressed with {kind}, which is not supported; unpack it first")
    content = io.BufferedReader(_Limited(stream, handle, path, limit()), BUFFER)
    inside = content.peek(HEAD)[:HEAD]
    if _is_tar(inside) or any(part in name for part in (".tar.", ".tgz", ".tbz2", ".txz")):
        raise InputError(path, f"{_UNPACK_TAR} and name the folder")
    again = packing_of(inside)
    if again not in (None, "zip"):
        raise InputError(path, f"is compressed twice ({kind}, then {again}); unpack it once")
    return content


_UNPACK_TAR = "is a tar archive, which may hold many files; unpack it (`tar -xf`)"


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _only_member(handle: IO[bytes], path: str) -> IO[bytes] | None:
    """Return the only file of a zip archive; None for an archive of NumPy arrays, which other readers open."""
    try:
        archive = zipfile.ZipFile(handle)
        files = [member for member in archive.infolist() if not member.filename.endswith("/")]
        # macOS adds files to archives.
        files = [member for member in files if not member.filename.startswith("__MACOSX/")]
        files = [member for member in files if not member.filename.rpartition("/")[2].startswith(".")]
        if len(files) == 1 and not files[0].filename.endswith(".npy"):
            return archive.open(files[0])
    except _DAMAGE as error:
        if path.lower().endswith(".npz"):
            return None
        raise InputError(path, f"the archive is damaged, cut short or encrypted ({error})") from None
    if files and all(member.filename.endswith(".npy") for member in files):
        return None
    names = [member.filename for member in files]
    if "[Content_Types].xml" in names:
        raise InputError(path, "is a document or workbook of an office program; save it as text or CSV")
    if not names:
        raise InputError(path, "expected a file in the archive, found none")
    some = f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
    raise InputError(path, f"is an archive of {len(files):,} files{some}; unpack it and name its folder or files")


class _Limited(ByteStream):
    """A decompressed file with a limit, because a small compressed file can expand to any size."""

    def __init__(self, stream: IO[bytes], handle: IO[bytes], path: str, limit: int) -> None:
        self._stream, self._handle, self._path, self._left, self._limit = stream, handle, path, limit, limit

    def take(self, count: int) -> bytes:
        try:
            data = self._stream.read(count)
        except InputError:
            raise
        except (*_DAMAGE, OSError) as error:
            # Errors of the store have a number; errors of decompressors have none.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            fault = f"the compressed file is cut short or damaged, or other bytes follow it ({error})"
            raise InputError(self._path, fault) from None
        self._left -= len(data)
        if self._left < 0:
            raise InputError(
                self._path,
                f"decompresses to more than {size(self._limit)}; refusing a possible decompression bomb. If you trust "
                "the file, raise the limit (`max_decompressed`)",
            )
        return data

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._handle.close()
        super().close()


class _Lzma(ByteStream):
    """Content of .xz and .lzma; `lzma.LZMAFile` would ignore all that follows a stream, even a damaged stream."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle, self._decoder, self._begun = handle, lzma.LZMADecompressor(), False

    def take(self, count: int) -> bytes:
        data = b""
        while not data:
            fresh = b""
            if self._decoder.eof:
                # Zeros may pad a stream.
                fresh = self._decoder.unused_data.lstrip(b"\0") or self._handle.read(BUFFER).lstrip(b"\0")
                if not fresh:
                    return b""
                self._decoder = lzma.LZMADecompressor()
            elif self._decoder.needs_input and not (fresh := self._handle.read(BUFFER)):
                raise EOFError("the stream has no end")
            data = self._decoder.decompress(fresh, count)
        return data
