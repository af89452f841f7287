"""Data sets in the formats of TopMost, HiCOT and OCTIS, and values that were published on them."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

HICOT = "Vuong et al. (2025), HiCOT, Findings of ACL, K = 50"
BEST = f"best of the neural models in {HICOT}"
PUBLISHED = {
    "20NG": [
        ("ETM", {"purity": 0.347, "nmi": 0.319}, HICOT),
        ("ECRTM", {"purity": 0.560, "nmi": 0.524}, HICOT),
        ("FASTopic", {"purity": 0.583, "nmi": 0.528}, HICOT),
        ("HiCOT", {"purity": 0.626, "nmi": 0.583}, HICOT),
    ],
    "AGNews": [("best", {"purity": 0.857, "nmi": 0.412}, BEST)],
    "SearchSnippets": [("best", {"purity": 0.818, "nmi": 0.478}, BEST)],
    "GoogleNews": [("best", {"purity": 0.465, "nmi": 0.657}, BEST)],
}
"""Published figures by data set: the model, its figures, and their source."""


@dataclass
class Part:
    """The documents of a split: counts by document and word, a label each, and optionally their texts."""

    counts: scipy.sparse.csr_matrix
    labels: np.ndarray
    texts: list | None = None


@dataclass
class DataSet:
    """A data set: its name, its words, and the documents to fit and to evaluate, which may be the same."""

    name: str
    words: list
    train: Part
    test: Part

    @property
    def tests_on_training(self):
        """Return whether the documents to evaluate are those that are fitted."""
        first, second = self.train.counts, self.test.counts
        return first.shape == second.shape and not (first != second).nnz


def read_data_sets(folder):
    """Read each data set in a folder, or the folder itself, if it is one."""
    folder = Path(folder)
    places = [folder] if reader_of(folder) else sorted(path for path in folder.iterdir() if path.is_dir())
    found = [(path, reader_of(path)) for path in places]
    sets = [reader(path) for path, reader in found if reader]
    if not sets:
        raise SystemExit(
            f"{folder}: expected folders with train_bow.npz and vocab.txt, or corpus.tsv and vocabulary.txt"
        )
    return sets


def reader_of(folder):
    """Return the function that reads a folder; None if it is not a data set."""
    if (folder / "train_bow.npz").exists():
        return read_matrices
    return read_octis if (folder / "corpus.tsv").exists() else None


def lines_of(path):
    """Return the lines of a file; None if there is none."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else None


def read_matrices(folder):
    """Read a data set of TopMost or HiCOT: a sparse matrix, labels and perhaps texts of each part."""
    words = lines_of(folder / "vocab.txt")
    parts = []
    for name in ("train", "test"):
        counts = scipy.sparse.csr_matrix(scipy.sparse.load_npz(folder / f"{name}_bow.npz")).astype(np.int64)
        labels = lines_of(folder / f"{name}_labels.txt")
        if counts.shape[1] != len(words) or counts.shape[0] != len(labels):
            raise SystemExit(
                f"{folder}: {name}_bow.npz has {counts.shape[0]} documents and {counts.shape[1]} words, "
                f"but there are {len(labels)} labels and {len(words)} words in vocab.txt"
            )
        texts = lines_of(folder / f"{name}_texts.txt")
        parts.append(Part(counts, np.array(labels), None if texts is None else [text.split() for text in texts]))
    return DataSet(folder.name, words, *parts)


def read_octis(folder):
    """Read a data set of OCTIS: texts with their part and label, separated by tabs, and a vocabulary."""
    words = lines_of(folder / "vocabulary.txt")
    number = {word: place for place, word in enumerate(words)}
    with (folder / "corpus.tsv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row]
    every = [(row[0].split(), row[1] if len(row) > 1 else "train", row[2] if len(row) > 2 else "") for row in rows]
    train = _part([document for document in every if document[1] == "train"], number)
    test = [document for document in every if document[1] == "test"]
    return DataSet(folder.name, words, train, _part(test, number) if test else train)


def _part(rows, number):
    tokens = [(place, number[word]) for place, (text, _, _) in enumerate(rows) for word in text if word in number]
    places, words = np.array(tokens, dtype=np.int64).reshape(-1, 2).T
    shape = len(rows), len(number)
    counts = scipy.sparse.csr_matrix((np.ones(places.size, np.int64), (places, words)), shape=shape)
    return Part(counts, np.array([label for _, _, label in rows]), [text for text, _, _ in rows])
