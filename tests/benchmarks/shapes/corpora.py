"""The corpora of the bench of shapes: made from public files, or drawn, and split by tokens."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

from collapsium.pipeline import ingest, split
from tests.benchmarks.peers import Data
from tests.benchmarks.reuters import documents as newswires

HELD_OUT = 0.1
"""Share of the tokens that is held out."""


@dataclass(frozen=True)
class Drawn:
    """Sizes and parameters of a corpus that is drawn: LDA with topics around a Zipf-Mandelbrot distribution of words.

    The defaults draw 10 million tokens of short documents. Their unigrams have about the entropy of reviews without
    stop words.
    """

    documents: int = 100_000
    tokens: int = 100
    """Tokens of each document."""
    words: int = 37_000
    topics: int = 300
    alpha: float = 0.02
    """Mean Dirichlet parameter of a topic in a document."""
    beta: float = 600.0
    """Dirichlet concentration of a topic around the distribution of words."""
    offset: float = 60.0
    """The word of rank r has a probability proportional to 1 / (r + offset)."""
    seed: int = 1


CHUNK_DOCUMENTS = 5000


def columns_of(cumulative, uniform):
    """Return, for uniform numbers of shape (rows, n), the first column whose cumulative probability exceeds each.

    Parameters
    ----------
    cumulative : ndarray, shape (rows, columns)
        Cumulative probabilities of each row, which end with 1.
    uniform : ndarray, shape (rows, n)
        Numbers in [0, 1).
    """
    rows, columns = cumulative.shape
    shift = np.arange(rows)[:, np.newaxis]
    position = np.searchsorted((cumulative + shift).ravel(), (uniform + shift).ravel(), side="right")
    return np.minimum(position.reshape(uniform.shape) - shift * columns, columns - 1)


def draw(drawn):
    """Draw a corpus.

    Returns
    -------
    counts : scipy.sparse.csr_matrix of int32, shape (documents, words)
        The corpus.
    score : float
        Mean log probability of its tokens under the parameters that they were drawn from, in nats.
    """
    generator = np.random.default_rng(drawn.seed)
    base = 1.0 / (np.arange(1, drawn.words + 1) + drawn.offset)
    phi = generator.gamma(drawn.beta * base / base.sum(), size=(drawn.topics, drawn.words)) + 1e-300
    phi /= phi.sum(axis=1, keepdims=True)
    # topics have unequal sizes, as in texts
    weights = 1.0 / np.arange(1, drawn.topics + 1) ** 0.5
    alpha = drawn.alpha * drawn.topics * weights / weights.sum()
    cumulative = np.cumsum(phi, axis=1)
    cumulative /= cumulative[:, -1:]
    parts, total = [], 0.0
    for first in range(0, drawn.documents, CHUNK_DOCUMENTS):
        count = min(CHUNK_DOCUMENTS, drawn.documents - first)
        theta = generator.gamma(alpha, size=(count, drawn.topics)) + 1e-300
        theta /= theta.sum(axis=1, keepdims=True)
        shares = np.cumsum(theta, axis=1)
        topics = columns_of(shares / shares[:, -1:], generator.random((count, drawn.tokens)))
        uniform, words = generator.random(topics.shape), np.empty(topics.shape, dtype=np.int64)
        for topic in np.unique(topics):
            of_topic = topics == topic
            position = np.searchsorted(cumulative[topic], uniform[of_topic], side="right")
            words[of_topic] = np.minimum(position, drawn.words - 1)
        rows = np.repeat(np.arange(count), drawn.tokens)
        ones = np.ones(rows.size, dtype=np.int32)
        parts.append(csr_matrix((ones, (rows, words.ravel())), shape=(count, drawn.words)))
        for document in range(0, count, 50):
            total += float(np.log(theta[document] @ phi[:, words[document]]).sum())
    indices, data = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data"))
    offsets = np.cumsum([0, *np.concatenate([np.diff(part.indptr) for part in parts])])
    counts = csr_matrix((data, indices, offsets), shape=(drawn.documents, drawn.words))
    scored = sum(len(range(0, part.shape[0], 50)) for part in parts) * drawn.tokens
    return counts, total / scored


def _given_split(name):
    """Return a function that makes a UCI corpus with a given split."""

    def make(sources, target):
        for part in ("train", "test"):
            source = sources / name / f"docword.{name}.{part}.txt.gz"
            ingest(source, target[part], vocabulary=sources / name / f"vocab.{name}.txt")

    return make


def _split(whole, target):
    split(whole, target["train"], target["test"], fraction=HELD_OUT)


def _texts(path, min_documents):
    """Return a function that makes a corpus of texts."""

    def make(sources, target):
        ingest(sources / path, target["whole"], min_documents=min_documents)
        _split(target["whole"], target)

    return make


def _reuters(sources, target):
    path = target["whole"].with_suffix(".jsonl")
    with path.open("w", encoding="utf-8") as lines:
        for number, _, text, _, _ in newswires(sources / "reuters" / "reuters21578-sgml.tar.gz"):
            if text.strip():
                lines.write(json.dumps({"id": str(number), "text": text}) + "\n")
    ingest(path, target["whole"], min_documents=5)
    path.unlink()
    _split(target["whole"], target)


def write_drawn(drawn, target):
    """Simulate a corpus and split it; return the score of the true parameters."""
    counts, score = draw(drawn)
    path = target["whole"].with_suffix(".npz")
    vocabulary = target["whole"].with_suffix(".txt")
    vocabulary.write_text("".join(f"w{word}\n" for word in range(drawn.words)))
    save_npz(path, counts, compressed=False)
    ingest(path, target["whole"], vocabulary=vocabulary)
    path.unlink()
    vocabulary.unlink()
    _split(target["whole"], target)
    return score


def _drawn(drawn):
    """Return a function that makes a simulated corpus."""

    def make(sources, target):
        print(f"score of the parameters that it is drawn from: {write_drawn(drawn, target):.4f}", flush=True)

    return make


@dataclass(frozen=True)
class Shape:
    """A corpus of the bench: its description, and the function that makes it from a folder of public files."""

    description: str
    make: Callable
    needs: str = ""
    """The file of the sources that must be there."""


SHAPES = {
    "kos": Shape("blog entries", _given_split("kos"), "kos/docword.kos.train.txt.gz"),
    "nips": Shape("long documents", _given_split("nips"), "nips/docword.nips.train.txt.gz"),
    "reuters": Shape("newswires", _reuters, "reuters/reuters21578-sgml.tar.gz"),
    "yelp": Shape("short reviews", _texts("yelp/reviews.jsonl.gz", 5), "yelp/reviews.jsonl.gz"),
    "nips-fulltext": Shape(
        "long documents, full text", _texts("nips-fulltext/papers.jsonl.gz", 10), "nips-fulltext/papers.jsonl.gz"
    ),
    "simulated": Shape("10 million tokens of short documents, Zipf's words", _drawn(Drawn())),
    "small": Shape("a small drawn corpus", _drawn(Drawn(documents=2000, words=5000, topics=50, alpha=0.05))),
    "large": Shape(
        # with more topics, but as many per document as in the other simulated corpus
        "100 million tokens of short documents",
        _drawn(Drawn(documents=1_000_000, words=50_000, topics=500, alpha=0.012)),
    ),
}


def part_of(folder, name, part):
    """Return the folder of a corpus's part, ``train`` or ``test``."""
    return Path(folder) / f"{name}-{part}"


def prepare(sources, folder, names):
    """Make missing corpora; return the names of those that cannot be made."""
    missing = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        target = {part: part_of(folder, name, part) for part in ("train", "test")}
        if all((path / "manifest.json").exists() for path in target.values()):
            continue
        shape = SHAPES[name]
        if shape.needs and (sources is None or not (sources / shape.needs).exists()):
            print(f"{name}: left out, as {shape.needs} is not among the sources", flush=True)
            missing.append(name)
            continue
        print(f"{name}: {shape.description}", flush=True)
        for path in (target | {"whole": folder / name}).values():
            shutil.rmtree(path, ignore_errors=True)
        shape.make(sources, target | {"whole": folder / name})
        shutil.rmtree(folder / name, ignore_errors=True)
    return missing


def measures(folder, name, place):
    """Write both parts as files that NumPy alone reads; return their sizes and digests."""
    sizes = {}
    for part in ("train", "test"):
        url = part_of(folder, name, part)
        data = Data.read(url)
        data.save(place / f"{name}-{part}.npz")
        digest = json.loads((url / "manifest.json").read_text())["sha256"]
        sizes[part] = {"tokens": int(data.counts.sum()), "pairs": int(data.words.size), "digest": digest}
        sizes |= {"documents": len(data.documents()), "words": data.size}
    return sizes
