"""Groups of arrays are stored with the bytes that Zarr writes, and Zarr can read them."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from zarr.storage import MemoryStore

from collapsium.storage.errors import DamagedError, StoreError
from collapsium.storage.io import arrays, atomic, file
from collapsium.storage.io.arrays import (
    Layout,
    StoredRows,
    metadata_of,
    parse_group,
    parse_metadata,
    read_arrays,
    write_array,
    write_arrays,
)
from collapsium.storage.io.folder import Folder

TYPES = st.sampled_from(["f8", "f4", "i8", "i4", "u2", "u1", "b1", "i1", "u8"])
SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=7)
VALUES = TYPES.flatmap(lambda kind: arrays_of.arrays(np.dtype(kind), SHAPES))


def by_zarr(values, chunks, compress, separator="."):
    """Return the files that Zarr writes."""
    files = {}
    options = {} if compress else {"compressors": None}
    array = zarr.create_array(
        MemoryStore(files), name="x", shape=values.shape, dtype=values.dtype, chunks=chunks, zarr_format=3,
        config={"write_empty_chunks": True},
        chunk_key_encoding={"name": "default", "configuration": {"separator": separator}}, **options,
    )  # fmt: skip
    if values.size:
        array[...] = values
    return {key: data.to_bytes() for key, data in files.items() if key != "zarr.json"}


def layout_of(values, rows, compress, separator="."):
    chunks = (rows, *(max(size, 1) for size in values.shape[1:]))
    return Layout(values.shape, values.dtype.newbyteorder("<"), chunks, compress, separator)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("separator", [".", "/"])
def test_metadata__equals_zarr(kind, compress, separator):
    values = np.zeros((5, 3), kind)
    layout = layout_of(values, 2, compress, separator)
    assert metadata_of(layout) == by_zarr(values, (2, 3), compress, separator)["x/zarr.json"]
    assert parse_metadata(metadata_of(layout), "x") == layout


@given(VALUES, st.integers(1, 40), st.booleans())
def test_files__equal_zarr(values, size, compress):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "CHUNK_BYTES", size)
        files = {}
        write_array(lambda key, data: files.update({key: bytes(data)}), "x", values, compress=compress)
    chunks = parse_metadata(files["x/zarr.json"], "x").chunks
    assert files == by_zarr(values, chunks, compress)


@given(VALUES, st.integers(1, 4), st.booleans(), st.sampled_from("./"), st.integers(-9, 9), st.integers(-9, 9))
def test_rows__are_read_as_written(values, rows, compress, separator, first, last):
    layout = layout_of(values, rows, compress, separator)
    files = by_zarr(values, layout.chunks, compress, separator)
    found = StoredRows("x", parse_metadata(files["x/zarr.json"], "x"), lambda key: files[f"x/{key}"])
    assert found.shape == values.shape
    for part in (slice(first, last), slice(None), ..., slice(None, None, 2), np.arange(0, values.shape[0], 3)):
        np.testing.assert_array_equal(found[part], values[part])
        assert found[part].dtype == values.dtype
    np.testing.assert_array_equal(np.concatenate(list(found.pieces())), values)


@given(st.dictionaries(st.text("abc_", min_size=1, max_size=5), VALUES, max_size=3), st.booleans())
def test_groups__are_read_by_zarr_and_like_zarr(tmp_path_factory, drawn, compress):
    folder = Folder(tmp_path_factory.mktemp("group"))
    wanted = {**drawn, "number": np.array(2.5), "other": np.array(7)}
    write_arrays(folder, wanted, compress=compress)
    group = zarr.open_group(folder.url, mode="r", zarr_format=3)
    for name, values in drawn.items():
        np.testing.assert_array_equal(group[name][...] if values.size else values, values)
    found = read_arrays(folder)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


def test_groups_of_release_0_1__with_chunks_in_folders_can_be_read_and_replaced(tmp_path):
    folder, values = Folder(tmp_path / "g"), np.arange(12.0).reshape(6, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "Layout", lambda *fields: Layout(*fields, separator="/"))
        digest = write_arrays(folder, {"x": values, "y": values[:, 0]})
    assert (tmp_path / "g/x/c/0/0").is_file()
    found = read_arrays(folder, digest)
    np.testing.assert_array_equal(found["x"], values)
    np.testing.assert_array_equal(found["y"], values[:, 0])
    write_arrays(folder, {"x": values})
    assert [path.name for path in sorted((tmp_path / "g/x").iterdir())] == ["c.0.0", "zarr.json"]


@pytest.mark.parametrize(
    "settings", [{"fill_value": 1.0}, {"attributes": {"a": 1}}, {"compressors": None, "filters": []}]
)
def test_arrays_in_another_format__are_refused(settings):
    zarr.create_array(MemoryStore(files := {}), shape=(3, 2), dtype="f8", chunks=(2, 1), **settings)
    with pytest.raises(DamagedError, match="x: expected a Zarr array"):
        parse_metadata(files["zarr.json"].to_bytes(), "x")


@given(st.binary(max_size=60) | st.sampled_from([b"{}", b"[]", b'{"shape": 3}', b'{"shape": [1e9]}', b"[" * 9999]))
def test_invalid_metadata__is_refused(description):
    for parse in (parse_metadata, parse_group):
        with pytest.raises(DamagedError):
            parse(description, "x")


@pytest.mark.parametrize("data", [bytes(64), b""])
@pytest.mark.parametrize("compress", [False, True])
def test_a_chunk_of_another_size__is_damage(data, compress):
    layout = layout_of(np.zeros(8), 4, compress)
    found = StoredRows("x", layout, lambda key: data)
    with pytest.raises(DamagedError, match=r"x/c\.1: expected a chunk"):
        found[4:8]


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 15, 17, 100])
def test_chunks__have_similar_numbers_of_rows_and_a_bounded_size(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 8 * 24 + 5)
    values = np.arange(rows * 3, dtype=np.float64).reshape(rows, 3)
    digest = write_arrays(Folder(tmp_path / "g"), {"x": values}, compress=False)
    np.testing.assert_array_equal(read_arrays(Folder(tmp_path / "g"), digest)["x"], values)
    sizes = [path.stat().st_size for path in (tmp_path / "g/x").glob("c.*")]
    assert len(sizes) == -(-rows // 8)
    assert set(sizes) == {24 * -(-rows // len(sizes))}


def test_names_in_folders__are_synced_once_before_the_group_gets_its_name(tmp_path, monkeypatch):
    synced, sync = [], atomic.sync_folder

    def record(path):
        hidden = str(path).split("/.g.")
        name = Path(hidden[0], "g", *hidden[1].split("/")[1:]) if len(hidden) > 1 else path
        synced.append((name.relative_to(tmp_path).as_posix(), (tmp_path / "run/g").exists()))
        sync(path)

    monkeypatch.setattr(atomic, "sync_folder", record)
    write_arrays(Folder(tmp_path / "run/g"), {"x": np.ones(3), "y": np.ones((2, 2)), "z": np.array(1.0)})
    before = [name for name, named in synced if not named]
    assert sorted(before) == sorted(set(before))
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in (tmp_path / "run/g").rglob("*")}
    assert set(before) == {".", *folders}
    assert [name for name, named in synced if named] == ["run"]


def test_files__are_synced_before_the_group_gets_its_name(tmp_path, monkeypatch):
    synced, sync, rename = set(), os.fsync, os.rename

    def record(handle):
        synced.add(os.fstat(handle).st_ino)
        sync(handle)

    def named(source, target):
        assert {path.stat().st_ino for path in (Path(source), *Path(source).rglob("*"))} <= synced
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "rename", named)
    monkeypatch.setattr(atomic, "SYNC_THREADS", 3)
    monkeypatch.setattr(atomic, "MAX_UNSYNCED_FILES", 4)
    values = {name: np.arange(5.0) for name in "abcde"}
    folder = Folder(tmp_path / "g")
    for _ in range(2):
        write_arrays(folder, values)
        assert read_arrays(folder).keys() == values.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_group__is_complete_or_absent_after_a_failure_of_the_disk(tmp_path, monkeypatch, lasting):
    folder, sync, failures = Folder(tmp_path / "g"), os.fsync, []
    digest = write_arrays(folder, {"x": np.zeros(3)})

    def fail(handle):
        if lasting or len(failures) < 2:
            failures.append(handle)
            raise OSError(errno.ENOSPC if lasting else errno.EIO, "failed")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(file, "pause", lambda seconds: None)
    if lasting:
        with pytest.raises(StoreError, match="no space is left on the disk"):
            write_arrays(folder, {"x": np.ones(3)})
        np.testing.assert_array_equal(read_arrays(folder, digest)["x"], 0.0)
    else:
        digest = write_arrays(folder, {"x": np.ones(3)})
        np.testing.assert_array_equal(read_arrays(folder, digest)["x"], 1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
