"""Compressed files and archives: every installation reads all kinds alike, and truncated ones are refused."""

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import types
import zipfile

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.errors import InputError
from collapsium.storage.readers.base import open_input
from collapsium.storage.readers.compression import binary_kind
from collapsium.storage.readers.open import kind_of_name

DATA = b"".join(b"line %d of a text\n" % number for number in range(400))


def by_arrow(codec):
    def compress(data):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()

    return compress


def zipped(*names, data=DATA):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return sink.getvalue()


def tarred(mode):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode=mode) as archive:
        for name in ("a.csv", "b.csv"):
            member = tarfile.TarInfo(name)
            member.size = len(DATA)
            archive.addfile(member, io.BytesIO(DATA))
    return sink.getvalue()


STREAMS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "zst": by_arrow("zstd"),
    "lz4": by_arrow("lz4"),
}


def content(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    with open_input(str(path)) as handle:
        return handle.read()


def refused(tmp_path, name, data):
    with pytest.raises(InputError) as raised:
        content(tmp_path, name, data)
    return str(raised.value)


@pytest.mark.parametrize("ending", STREAMS)
def test_a_compressed_file__is_recognised_by_its_bytes_and_read_completely(tmp_path, ending):
    compress = STREAMS[ending]
    assert content(tmp_path, f"x.csv.{ending}", compress(DATA)) == DATA
    assert content(tmp_path, "x.csv", compress(DATA)) == DATA
    assert content(tmp_path, f"two.csv.{ending}", compress(DATA[:99]) + compress(DATA[99:])) == DATA
    assert kind_of_name(f"x.csv.{ending}") == "csv"


@pytest.mark.parametrize("ending", STREAMS)
def test_a_truncated_compressed_file_or_one_with_trailing_bytes__is_refused(tmp_path, ending):
    compress = STREAMS[ending]
    whole, two = compress(DATA), compress(DATA[:99]) + compress(DATA[99:])
    for data in (whole[:-3], whole[: len(whole) // 2], two[:-9], whole + b"garbage", whole + b"x"):
        assert "cut short or damaged" in refused(tmp_path, f"x.{ending}", data)
    assert "cut short" in refused(tmp_path, f"x.{ending}", b"")
    assert "its bytes are not compressed by that" in refused(tmp_path, f"x.{ending}", DATA)


@given(st.sampled_from(sorted(STREAMS)), st.floats(0, 1, exclude_max=True))
def test_no_prefix_of_a_compressed_file__is_accepted_as_complete(tmp_path_factory, ending, share):
    whole = STREAMS[ending](DATA)
    name = f"x.csv.{ending}"
    assert refused(tmp_path_factory.mktemp("cut"), name, whole[: int(share * len(whole))])


def test_zeros_after_gzip_and_xz__are_padding(tmp_path):
    assert content(tmp_path, "x.gz", gzip.compress(DATA) + bytes(512)) == DATA
    assert content(tmp_path, "x.xz", lzma.compress(DATA) + bytes(8)) == DATA


def test_decompression__does_not_depend_on_installed_packages(tmp_path, monkeypatch):
    """fsspec would use the installed packages, one of which accepts truncated streams."""
    import fsspec.compression

    def lenient(*_, **__):
        raise AssertionError("another decompressor was asked")

    monkeypatch.setitem(sys.modules, "zstandard", types.ModuleType("zstandard"))
    for name in ("zstd", "gzip", "xz", "bz2", "zip"):
        monkeypatch.setitem(fsspec.compression.compr, name, lenient)
    monkeypatch.setitem(fsspec.utils.compressions, "zst", "zstd")
    whole = STREAMS["zst"](DATA)
    assert content(tmp_path, "x.csv.zst", whole) == DATA
    assert "cut short or damaged" in refused(tmp_path, "x.csv.zst", whole[:-5])


def test_archives_of_one_file__are_read_and_larger_ones_refused(tmp_path):
    assert content(tmp_path, "x.csv.zip", zipped("x.csv")) == DATA
    assert content(tmp_path, "x.csv.zip", zipped("x.csv", "__MACOSX/._x.csv", "d/.DS_Store")) == DATA
    nameless = zipped("?", "a.npy").replace(b"?", b"\0")  # zipfile reads this name as an empty one
    assert "archive of 2 files" in refused(tmp_path, "x.npz", nameless)
    assert "archive of 2 files (a.csv, b.csv)" in refused(tmp_path, "x.csv.zip", zipped("a.csv", "b.csv"))
    assert "archive of 2 files" in refused(tmp_path, "x.csv", zipped("a.csv", "b.csv"))
    assert "save it as text or CSV" in refused(tmp_path, "x.csv", zipped("[Content_Types].xml", "xl/workbook.xml"))
    assert "found none" in refused(tmp_path, "x.csv.zip", zipped())
    assert "damaged, cut short" in refused(tmp_path, "x.csv.zip", zipped("x.csv")[:-9])
    for name, mode in (("x.tar", "w"), ("x.csv", "w"), ("x.csv.tar.gz", "w:gz"), ("x.tgz", "w:gz"), ("x", "w:xz")):
        assert "is a tar archive" in refused(tmp_path, name, tarred(mode))


def test_other_and_nested_compression__is_refused_with_advice(tmp_path):
    assert "unpack it first" in refused(tmp_path, "x.Z", b"\x1f\x9d\x90abc")
    assert "is compressed twice (gzip, then gzip)" in refused(tmp_path, "x.gz", gzip.compress(gzip.compress(DATA)))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"PAR1\x15\x04\x15", "a Parquet file (`format` parquet)"),
        (b"PAR1 is a gene of plants", None),
        (b"PK\x03\x04\x14", "a zip archive"),
        (b"PK, a pyruvate kinase", None),
        (b"BZh is no word", None),
        (b"%PDF-1.4\n", "a PDF document"),
        (b"\x28\xb5\x2f\xfd\0", "compressed (zstd)"),
        (b"ships and sails", None),
    ],
)
def test_binary_files__are_recognised_by_their_first_bytes(head, kind):
    assert binary_kind(head) == kind
