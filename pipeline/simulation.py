"""Corpora with known truth, of any size: drawn shard by shard from a family's own model."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from collapsar.pipeline.config import make_config
from collapsar.pipeline.contract import Summary, load_family
from collapsar.pipeline.inference import sparse
from collapsar.storage.errors import OptionError
from collapsar.storage.folder import Folder, created
from collapsar.storage.manifest import Manifest, VocabularyRecord
from collapsar.storage.model import ModelRecord, ModelWriter
from collapsar.storage.progress import Counting, silent
from collapsar.storage.vocabulary import FILE, Vocabulary, words_digest
from collapsar.storage.writer import CorpusWriter, even_shard_tokens, numbered_ids
from collapsar.workers.streams import Stream


def simulate(
    corpus: str | os.PathLike[str],
    *,
    family: str,
    documents: int,
    words: int,
    tokens: float,
    seed: int = 0,
    shard_tokens: int | None = None,
    progress: Counting = silent,
    **options: Any,
) -> Manifest:
    """Draw a corpus from a family's own model.

    The truth lies in the corpus's folder ``truth``: a model of the drawn topics, which `topics` reads, and the drawn
    proportions, ``truth/proportions/part-00000.parquet`` and so on, as `infer` writes them.

    Parameters
    ----------
    corpus : str or path-like
        Folder to make.
    family : str
        Name of the family, such as ``lda``.
    documents, words : int
        Sizes of the corpus and its vocabulary.
    tokens : float
        Mean number of tokens of a document; the number is Poisson.
    seed : int, optional
        Another seed is another corpus.
    shard_tokens : int, optional
        Tokens of a shard, about; by default an eighth of the corpus, between 100,000 and 2,000,000.
    progress : callable, optional
        Told the number of documents written so far.
    **options
        The family's options, such as ``topics``, ``alpha`` and ``beta``, at whose values (or priors' means) it draws.

    Returns
    -------
    Manifest
        What the corpus holds.

    Raises
    ------
    OptionError
        A size is less than 1, or an option is wrong.
    OccupiedError
        The folder exists.
    """
    for name, value in (("documents", documents), ("words", words), ("tokens", tokens)):
        if not value >= 1:
            raise OptionError(f"--{name}: expected 1 or more, found {value}")
    if shard_tokens is not None and shard_tokens < 1:
        raise OptionError(f"--shard-tokens: expected 1 or more, found {shard_tokens}")
    drawing, config = load_family(family), make_config(family, options)
    stream = Stream(seed, "simulate")
    rows, globals_ = drawing.truth(Summary(documents, words, int(documents * tokens)), config, stream)
    size = shard_tokens or even_shard_tokens(int(documents * tokens))
    portion = max(round(size / tokens), 1)
    names = [f"w{number:0{len(str(words - 1))}d}" for number in range(words)]
    with created(Folder(corpus)) as folder:
        writer = CorpusWriter(folder, words)
        for place, first in enumerate(range(0, documents, portion)):
            count = min(portion, documents - first)
            drawn, theta = drawing.simulate(rows, globals_, count, tokens, stream.at(place=place))
            drawn = replace(drawn, ids=numbered_ids(first + 1, count))
            writer.add_shard(drawn)
            _write_proportions(folder, place, drawn.ids, theta)
            progress(first + count)
        manifest = writer.finish(names)
        truth = ModelWriter(folder / "truth")
        truth.write_globals(globals_)
        truth.write_block(0, rows)
        nothing = np.zeros(words, dtype=np.int64)
        record = ModelRecord(
            family=family,
            options=config.model_dump(mode="json"),
            iterations=0,
            corpus=manifest.digest,
            vocabulary=VocabularyRecord(file=FILE, words=words, sha256="0" * 64, words_sha256=words_digest(names)),
            blocks=(0, words),
            shards=(),
        )
        truth.finish(record, Vocabulary(names, nothing, nothing))
    return manifest


def _write_proportions(folder: Folder, place: int, ids: pa.Array, theta: Any) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(sparse(ids, theta, 0.0), sink, compression="zstd")
    folder.write(f"truth/proportions/part-{place:05d}.parquet", sink.getvalue().to_pybytes())
