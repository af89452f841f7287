"""A corpus in memory, as arrays for other libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus import corpus as corpora
from collapsium.storage.corpus import shard

Floats = npt.NDArray[np.float64]


class Data:
    """A corpus in memory."""

    def __init__(
        self, offsets: npt.NDArray[np.int64], words: npt.NDArray[np.int32], counts: npt.NDArray[np.int32], size: int
    ) -> None:
        self.offsets, self.words, self.counts, self.size = offsets, words, counts, int(size)

    @classmethod
    def read(cls, url: str | Path) -> Data:
        """Read a corpus, or a file that `save` wrote."""
        if str(url).endswith(".npz"):
            with np.load(url) as arrays:
                return cls(arrays["offsets"], arrays["words"], arrays["counts"], arrays["size"])
        corpus = corpora.Corpus(url)
        documents = shard.Documents.join([one.documents() for one in corpus.references])
        return cls(documents.offsets, documents.words, documents.counts, corpus.manifest.vocabulary.words)

    def save(self, path: str | Path) -> None:
        """Write a file that NumPy alone can read."""
        np.savez(path, offsets=self.offsets, words=self.words, counts=self.counts, size=self.size)

    def tokens(self, document: int) -> npt.NDArray[np.int32]:
        """Return a document's tokens, as numbers of words."""
        first, last = self.offsets[document], self.offsets[document + 1]
        return np.repeat(self.words[first:last], self.counts[first:last])

    def documents(self) -> range:
        """Return the documents' numbers."""
        return range(self.offsets.size - 1)
