"""Outputs that cannot be made are refused before the work, and full disks are named."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from collapsium.storage.errors import OccupiedError, StoreError
from collapsium.storage.io.file import File, require_free, scratch_folder
from collapsium.storage.io.folder import Folder, ensure_free


@pytest.fixture(params=[require_free, lambda path: ensure_free(Folder(path))], ids=["file", "folder"])
def check(request):
    return request.param


def test_an_output_inside_a_file__is_refused(tmp_path, check):
    (tmp_path / "texts.txt").write_text("a file")
    with pytest.raises(StoreError, match=r"out: .*texts\.txt is not a folder; name another place"):
        check(tmp_path / "texts.txt/further/out")


def test_an_output_in_a_read_only_folder__is_refused(tmp_path, check, monkeypatch):
    check(tmp_path / "new/out")
    monkeypatch.setattr(os, "access", lambda path, *mode, **options: path != str(tmp_path))
    monkeypatch.setattr(os, "supports_effective_ids", {os.access})
    with pytest.raises(StoreError, match=f"{tmp_path} is read-only; name another place"):
        check(tmp_path / "new/out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_a_broken_link__is_refused(tmp_path):
    (tmp_path / "out").symlink_to("gone")
    with pytest.raises(OccupiedError, match="is a link to gone, which does not exist; remove the link"):
        ensure_free(Folder(tmp_path / "out"))


def test_a_file_in_memory__needs_no_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    File(tmp_path / "out").write(b"whole")
    File("memory://outputs/out").write(b"whole")
    assert (tmp_path / "out").read_bytes() == b"whole"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        RuntimeError(f"Can't close file (errno = 28, error message = '{os.strerror(errno.ENOSPC)}')"),
    ],
)
def test_a_full_disk_for_temporary_files__is_named_with_the_remedy(error):
    with (
        pytest.raises(StoreError, match="no space is left on the disk; the variable TMPDIR"),
        scratch_folder() as place,
    ):
        raise error
    assert not Path(place).exists()
    with pytest.raises(OSError, match="other"), scratch_folder():
        raise OSError("other")
