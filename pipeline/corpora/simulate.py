"""Simulate corpora of any size with known ground truth, shard by shard, from a family's generative model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.pipeline.corpora.options import SimulateOptions
from collapsium.pipeline.models.registry import load_family, make_family, make_options
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, option_names
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import MAX_SHARD_DOCUMENTS, VECTORS, Manifest, VocabularyRecord
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.vectors import Vectors
from collapsium.storage.corpus.vocabulary import FILE, Vocabulary, words_digest
from collapsium.storage.corpus.writer import CorpusWriter, VectorWriter, even_shard_tokens, numbered_ids
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.model import ModelRecord, ModelWriter
from collapsium.storage.runs.proportions import SCHEMA
from collapsium.storage.units import Counting, silent
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, GlobalState
from collapsium.workers.families.family import Simulates, Summary
from collapsium.workers.families.generative import CHUNK_CELLS, chunk_documents, expected_counts

BLOCK_CELLS = 8_000_000  # Words times topics of a block of the ground truth, which makes a block 64 MB
# Smaller proportions are not stored; of 500 topics at the defaults, they are 62% of the entries, 0.3% of the sum
MIN_PROPORTION = 1e-4


@shows("drawing documents")
@keywords(sizes=SimulateOptions)
@overwrites("corpus")
def simulate(
    corpus: str | os.PathLike[str] | None = None,
    *,
    family: str,
    sizes: SimulateOptions,
    progress: Counting = silent,
    **options: Any,
) -> Manifest | Corpus:
    """Draw a corpus from a family's generative model.

    The ground truth is in the folder ``truth`` of the corpus: a model of the drawn topics, which `topics` and
    `evaluate` read, and the drawn proportions, ``truth/proportions/part-00000.parquet`` and so on, as `infer` writes
    them. Proportions below 0.0001 are left out; their total is one minus the sum of the others.

    The corpus depends only on the sizes, the options, the seed and `shard_tokens`. Memory holds the topics, without
    words of a probability below 1e-12, and one shard; it does not grow with the number of documents.

    Parameters
    ----------
    corpus : str or path-like, optional
        Folder to make. By default the corpus is temporary, and is removed when the returned object is collected.
    family : str
        Name of the family, such as ``lda``.
    sizes : SimulateOptions
        Size of a corpus drawn from a family's generative model.
    **options
        The family's options, such as ``topics``, ``alpha`` and ``beta``, or the means of their priors.

    Returns
    -------
    Manifest or Corpus
        The corpus's manifest or, without `corpus`, the corpus.

    Raises
    ------
    OptionError
        A size is missing or less than 1, an option is wrong, or the family has no generative model.
    OccupiedError
        The folder exists.
    """
    if not issubclass(load_family(family), Simulates):
        raise OptionError(f"family '{family}' has no generative model to draw a corpus from", "family")
    config = make_options(family, options, option_names(simulate), drawing=True)
    drawing = cast("SimulatingFamily", make_family(family, config))
    vectors = drawing.corpus_kind == VECTORS
    document_tokens = _require_sizes(drawing, family, sizes.documents, sizes.words, sizes.tokens)
    stream = Stream(sizes.seed, "simulate")
    topics, global_state = drawing.draw_model(
        Summary(sizes.documents, sizes.words, int(sizes.documents * document_tokens)), stream
    )
    size = max(
        round((sizes.shard_tokens or even_shard_tokens(int(sizes.documents * document_tokens))) / document_tokens), 1
    )
    names = [f"{'x' if vectors else 'w'}{number:0{len(str(sizes.words - 1))}d}" for number in range(sizes.words)]
    with place_for(corpus, "corpus") as target, created(Folder(target.path)) as folder:
        truth = ModelWriter(folder / "truth")
        writer = VectorWriter(folder, sizes.words, size * sizes.words) if vectors else CorpusWriter(folder, sizes.words)
        add: Callable[[Any], None] = writer.add if isinstance(writer, VectorWriter) else writer.add_shard
        cuts, parts = _write_topics(truth, topics, global_state, sizes.words, vectors=vectors)
        for place, first in enumerate(range(0, sizes.documents, size)):
            ids = numbered_ids(first + 1, min(size, sizes.documents - first))
            drawn, table = _draw_shard(drawing, topics, global_state, ids, document_tokens, stream.at(place=place))
            add(drawn)
            sink = pa.BufferOutputStream()
            # No two proportions are equal, so a dictionary would only cost time; split byte streams compress.
            encoding = {"proportions.list.element": "BYTE_STREAM_SPLIT"}
            pq.write_table(
                table, sink, compression="zstd", use_dictionary=["topics.list.element"], column_encoding=encoding
            )
            folder.write(f"truth/proportions/part-{place:05d}.parquet", sink.getvalue().to_pybytes())
            # Free them before the next shard is drawn.
            del drawn, table
            progress(first + len(ids))
        manifest = writer.finish(names)
        record = ModelRecord(
            family=family,
            options=config.model_dump(mode="json"),
            iterations=0,
            corpus=manifest.digest,
            vocabulary=VocabularyRecord(file=FILE, words=len(names), sha256="0" * 64, words_sha256=words_digest(names)),
            blocks=cuts,
            shards=(),
            parts=parts,
        )
        nothing = np.zeros(len(names), dtype=np.int64)
        truth.finish(record, Vocabulary(names, nothing, nothing))
    return manifest if corpus is not None else target.with_temporary(Corpus(target.path))


SimulatingFamily = Simulates[Any, Any, Any, Any]


def _require_sizes(drawing: SimulatingFamily, family: str, documents: int, words: int, tokens: float | None) -> float:
    """Return the number of tokens of a document, or of values of a vector; refuse sizes that cannot be drawn."""
    vectors = drawing.corpus_kind == VECTORS
    if vectors and tokens is not None:
        raise OptionError(f"family '{family}' draws vectors; `words` is their number of columns", "tokens")
    if not vectors and tokens is None:
        raise OptionError("`tokens` is required: the mean number of tokens of a document")
    document_tokens = float(words) if tokens is None else tokens
    for name, value in (("documents", documents), ("words", words), ("tokens", document_tokens)):
        if not value >= 1:
            raise OptionError(f"expected 1 or more, found {value}", name)
        if value > MAX_SHARD_DOCUMENTS:
            raise OptionError(f"expected at most {MAX_SHARD_DOCUMENTS:,}, found {value}", name)
    return document_tokens


def _write_topics(
    truth: ModelWriter, topics: Arrays, global_state: GlobalState, words: int, *, vectors: bool
) -> tuple[tuple[int, ...], dict[str, str]]:
    """Write the drawn topics and global state; return the block boundaries of the vocabulary and the digests."""
    parts = [truth.write_global_state(global_state.to_arrays())]
    columns = sum(rows[:1].size for rows in topics.values()) if vectors else topics["tokens"].size
    cuts = (*range(0, words, max(BLOCK_CELLS // columns, 1)), words)
    for number, (low, high) in enumerate(pairwise(cuts)):
        if vectors:
            block = {name: np.ascontiguousarray(rows[low:high]) for name, rows in topics.items()}
        else:
            block = {"word_topic": expected_counts(topics, low, high)}
        parts.append(truth.write_block(number, block))
    return cuts, dict(parts)


def _draw_shard(
    drawing: SimulatingFamily, topics: Arrays, global_state: GlobalState, ids: pa.Array, tokens: float, stream: Stream
) -> tuple[Documents | Vectors, pa.Table]:
    """Draw a shard's documents and the table of their proportions, in chunks that bound memory."""
    size = max(int(CHUNK_CELLS / tokens), 1) if drawing.corpus_kind == VECTORS else chunk_documents(topics, tokens)
    parts: list[Any] = []
    tables = []
    for number, first in enumerate(range(0, len(ids), size), start=1):
        chunk_ids = ids.slice(first, size)
        drawn, theta = drawing.simulate(topics, global_state, len(chunk_ids), tokens, stream.at(iteration=number))
        parts.append(replace(drawn, ids=chunk_ids))
        tables.append(_table(chunk_ids, theta))
    drawn_: Documents | Vectors = type(parts[0]).join(parts)
    return drawn_, pa.concat_tables(tables)


def _table(ids: pa.Array, theta: npt.NDArray[np.float64]) -> pa.Table:
    """Return the table of proportions; drawn proportions are not equal, so no stable sort is needed."""
    large = np.where(theta < MIN_PROPORTION, 0.0, theta)
    order = np.argsort(-large, axis=1, kind="stable")
    falling = np.take_along_axis(large, order, axis=1)
    keep = falling > 0
    offsets = pa.array(np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int32))
    topics = pa.ListArray.from_arrays(offsets, pa.array(order[keep].astype(np.int32)))
    proportions = pa.ListArray.from_arrays(offsets, pa.array(falling[keep].astype(np.float32)))
    return pa.Table.from_arrays([ids, topics, proportions], schema=SCHEMA)
