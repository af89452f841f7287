"""A corpus in memory, as arrays that other libraries take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Data:
    """A corpus in memory, as the libraries want it.

    Parameters
    ----------
    offsets : ndarray of int64, shape (documents + 1,)
        Where each document's pairs begin.
    words, counts : ndarray of int32, shape (pairs,)
        The distinct words of a document, and how often it has each.
    size : int
        Words in the vocabulary.
    """

    def __init__(
        self, offsets: npt.NDArray[np.int64], words: npt.NDArray[np.int32], counts: npt.NDArray[np.int32], size: int
    ) -> None:
        self.offsets, self.words, self.counts, self.size = offsets, words, counts, int(size)

    @classmethod
    def read(cls, url: str | Path) -> Data:
        """Read a corpus, or a file that `save` wrote."""
        if str(url).endswith(".npz"):
            with np.load(url) as kept:
                return cls(kept["offsets"], kept["words"], kept["counts"], kept["size"])
        from collapsium.storage.corpus.corpus import Corpus  # not above: it would count as the libraries' memory
        from collapsium.storage.corpus.shard import Documents

        corpus = Corpus(url)
        found = Documents.join([one.documents() for one in corpus.references])
        return cls(found.offsets, found.words, found.counts, corpus.manifest.vocabulary.words)

    def save(self, path: str | Path) -> None:
        """Write a file that NumPy alone can read."""
        np.savez(path, offsets=self.offsets, words=self.words, counts=self.counts, size=self.size)

    def tokens(self, document: int) -> npt.NDArray[np.int32]:
        """Return a document's words, each as often as it occurs."""
        first, last = self.offsets[document], self.offsets[document + 1]
        return np.repeat(self.words[first:last], self.counts[first:last])

    def documents(self) -> range:
        """Return the documents' numbers."""
        return range(self.offsets.size - 1)
