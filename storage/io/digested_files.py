"""Read files whose SHA-256 is known, so that damage is found."""

from __future__ import annotations

import hashlib

from collapsium.storage.errors import AbsentError, DamagedError
from collapsium.storage.io.folder import Folder


class DigestedFiles:
    """The files of a Zarr group, each of which has a SHA-256."""

    def __init__(self, folder: Folder, files: dict[str, str]) -> None:
        self.folder, self.files = folder, files
        # The metadata is small and is read and written at once.
        self.metadata = {key: self.read(key) for key in files if is_metadata(key)}

    def finish(self) -> None:
        """Write the metadata files."""
        for key, data in sorted(self.metadata.items()):
            self.files[key] = self.folder.write(key, data)

    def read(self, key: str) -> bytes:
        """Return the bytes of a file; raise `DamagedError` if they do not match its digest."""
        try:
            data = self.folder.read(key)
        except AbsentError:
            raise DamagedError(f"{self.folder.url}/{key}", "the file is missing") from None
        if hashlib.sha256(data).hexdigest() != self.files[key]:
            raise DamagedError(f"{self.folder.url}/{key}", "the bytes do not have their digest; the file is damaged")
        return data


def is_metadata(key: str) -> bool:
    """Return True if a file holds the metadata of an array or a group."""
    return key.rpartition("/")[2] == "zarr.json"
