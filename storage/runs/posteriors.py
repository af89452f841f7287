"""Posteriors of a model's training documents that effects have stored: a folder of arrays for each shard."""

from __future__ import annotations

import hashlib

from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Digest, Record, canonical, check, dump, read_record

FOLDER = "posteriors"  # Within the folder of a model
RECORD = "posteriors.json"
KIND, VERSION = "collapsium-posteriors", 2


class PosteriorRecord(Record):
    """Posteriors of a model's documents: all that they depend on, and the digests of their arrays."""

    model: str  # Digest of the model
    corpus: str  # Digest of the corpus
    formula: str  # Formula that the prior follows
    seed: int
    topics: tuple[Count, ...]  # Permanent ids of the columns
    digests: tuple[Digest, ...] = ()  # Digest of each shard's arrays

    def folder(self, model: Folder) -> Folder:
        """Return the folder of such posteriors of a model."""
        key = canonical(self.model_dump(mode="json", exclude={"digests"}))
        return model / FOLDER / hashlib.sha256(key).hexdigest()[:16]

    def write(self, model: Folder) -> None:
        """Write the record, after the arrays."""
        record = {"format": KIND, "version": VERSION, **self.model_dump(mode="json")}
        self.folder(model).write(RECORD, dump(record))

    def stored(self, model: Folder) -> PosteriorRecord | None:
        """Return the record of the same posteriors that a model has; None without them."""
        folder = self.folder(model)
        try:
            record = read_record(folder, RECORD, KIND, VERSION)
        except AbsentError:
            return None
        known = {name: value for name, value in record.items() if name not in ("format", "version")}
        saved = check(PosteriorRecord, known, f"{folder.url}/{RECORD}")
        return saved if saved.model_copy(update={"digests": ()}) == self else None
