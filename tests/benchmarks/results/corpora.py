"""Corpora of `make results`, each split into training and held-out tokens, with labels, texts or the true topics."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from collapsium.pipeline import Model, ingest, sample_texts, simulate, split
from collapsium.storage.corpus.corpus import Corpus as Ingested
from tests.benchmarks.results import plan
from tests.benchmarks.results.fit import holding
from tests.benchmarks.topics import write_corpora
from tests.benchmarks.topics_data import read_data_sets

WORD = re.compile(r"[^\W\d_]+")
MIN_DOCUMENTS = 5
"""Documents in which a word of the sample texts has to occur."""


@dataclass(frozen=True)
class Prepared:
    """The files of a corpus; a path is None if the corpus lacks such a file."""

    folder: Path

    def _optional(self, name: str) -> str | None:
        return str(self.folder / name) if (self.folder / name).exists() else None

    def arguments(self) -> dict[str, str | None]:
        """Return the files as the arguments of a fit."""
        optional = {"labels": "labels.npz", "texts": "texts.json", "truth": "truth.npz"}
        parts = {part: str(self.folder / part) for part in ("train", "heldout")}
        return {**parts, **{name: self._optional(file) for name, file in optional.items()}}

    def sizes(self) -> dict[str, object]:
        """Return sizes and digests."""
        train = json.loads((self.folder / "train" / "manifest.json").read_text())
        source = json.loads((self.folder / "source.json").read_text())
        corpus = Ingested(self.folder / "train")
        return {
            "documents": corpus.manifest.documents,
            "words": corpus.manifest.vocabulary.words,
            "tokens": corpus.manifest.tokens,
            "digest": train["sha256"],
            **source,
        }


def prepare(corpus: plan.Corpus, folder: Path, sources: Path | None) -> Prepared | None:
    """Write a corpus unless it exists; return None if its source does not exist."""
    place = folder / re.sub(r"\W+", "-", corpus.name)
    prepared = Prepared(place)
    if (place / "done").exists():
        return prepared
    path = sources / corpus.source if sources is not None and corpus.source else None
    if corpus.source and (path is None or not path.exists()):
        return None
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if corpus.simulate:
        _simulated(corpus, place)
    elif path is None:
        _sample(place)
    elif path.is_dir():
        _data_set(path, place)
    else:
        vocabulary = path.parent / path.name.replace("docword", "vocab").removesuffix(".gz")
        ingest(path, place / "whole", vocabulary=vocabulary)
    split(place / "whole", place / "train", place / "heldout", fraction=plan.HELD_OUT, seed=1)
    record = {"source": corpus.source, "source_sha256": _digest(path)} if path is not None else {}
    (place / "source.json").write_text(json.dumps(record))
    (place / "done").touch()
    return prepared


def _digest(path: Path) -> str:
    """Return the digest of a file, or of the files of a folder with their names."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update((file.name if len(files) > 1 else "").encode() + file.read_bytes())
    return digest.hexdigest()


def _simulated(corpus: plan.Corpus, place: Path) -> None:
    simulate(place / "whole", **corpus.simulate)
    share = np.zeros(corpus.topics)
    for part in sorted((place / "whole" / "truth" / "proportions").iterdir()):
        table = pq.read_table(part)
        for ids, proportions in zip(table["topics"].to_pylist(), table["proportions"].to_pylist(), strict=True):
            share[ids] += proportions
    # topics with almost no tokens cannot be recovered
    largest = np.sort(np.argsort(-share, kind="stable")[: holding(share)])
    with Model(place / "whole") as truth:
        np.savez(place / "truth.npz", phi=np.array(truth.topic_word)[largest])


def _sample(place: Path) -> None:
    texts = sample_texts()
    lines = place / "texts.jsonl"
    lines.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    ingest(lines, place / "whole", min_documents=MIN_DOCUMENTS)
    (place / "texts.json").write_text(json.dumps([WORD.findall(str(text["text"]).lower()) for text in texts]))
    presidents = np.unique([str(text["president"]) for text in texts], return_inverse=True)[1]
    np.savez(place / "labels.npz", labels=presidents)


def _data_set(path: Path, place: Path) -> None:
    (data,) = read_data_sets(path)
    train, _ = write_corpora(data, place / "parts")
    train.rename(place / "whole")
    np.savez(place / "labels.npz", labels=np.unique(data.train.labels, return_inverse=True)[1])
    if data.train.texts is not None:
        (place / "texts.json").write_text(json.dumps(data.train.texts))
