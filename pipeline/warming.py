"""Warm starts: a fit that begins from another run's proportions and topics, whatever that run's family is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsar.pipeline.contract import load_family
from collapsar.pipeline.opening import Model
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import AbsentError, MismatchError, OptionError
from collapsar.storage.manifest import DOCUMENTS
from collapsar.storage.records import digest_of
from collapsar.storage.vectors import AnyShard
from collapsar.workers import tasks
from collapsar.workers.contract import load_sweeps
from collapsar.workers.delta import Arrays, Delta
from collapsar.workers.streams import Stream

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
CELLS = 1 << 20  # probabilities that are made at a time


@dataclass(frozen=True)
class WarmSource:
    """The model that a fit begins from.

    Attributes
    ----------
    url : str
        Folder of the model or, where the run had none, of its checkpoint.
    digest : str
        Of what it says of itself, with the digests of its parts.
    topics : int
        How many topics of it have tokens.
    """

    url: str
    digest: str
    topics: int

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> WarmSource:
        """Name the model of a run."""
        model = Model(run)
        family = model.record.family
        if load_family(family).CORPUS != DOCUMENTS:
            raise OptionError(f"--warm {model.folder.url}: family '{family}' has no topics over words to begin from")
        return cls(model.folder.address, digest_of(model.record.model_dump(mode="json")), len(_occupied(model)[0]))

    def record(self) -> dict[str, Any]:
        """Return what `run.json` shall say."""
        return {"url": self.url, "digest": self.digest, "topics": self.topics}


@dataclass(frozen=True)
class WarmReference:
    """Where to read what a model knows of a shard.

    Attributes
    ----------
    url : str
        Folder of the model.
    number : int or None
        Its number of the shard; None where it was fitted to other documents, whose proportions are then fitted with the
        topics held fixed.
    topics : tuple of int
        Columns of its topics that have tokens, or of the largest of them.
    share : float
        Of the tokens, that of these topics.
    """

    url: str
    number: int | None
    topics: tuple[int, ...]
    share: float

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Read the documents' proportions, and the topics over the shard's words.

        Parameters
        ----------
        shard : Shard
            The shard.
        stream : Stream
            For families that draw numbers as they fit proportions.

        Returns
        -------
        Arrays
            ``document_topic``, float32, shape (documents, topics), and ``word_topic``, float32, shape (words of the
            shard, topics); of a tree ``topic_parent``, int64, each node's parent among these topics, -1 for the root.
        """
        model = Model(self.url)
        half = load_sweeps(model.record.family)
        rows = _rows(model, shard)
        if self.number is None:
            local: Arrays = half.settle(shard, rows, model.globals, stream)
        else:
            local = model.documents(self.number)
        columns = list(self.topics)
        theta = np.asarray(half.infer(local, model.globals)["document_topic"][:, columns], dtype=np.float32)
        known = np.empty((shard.words.size, theta.shape[1]), dtype=np.float32)
        portion = max(CELLS // max(theta.shape[1], 1), 1)
        for low in range(0, shard.words.size, portion):  # in double precision, all of them would take too much
            some = {name: values[low : low + portion] for name, values in rows.items()}
            known[low : low + portion] = half.probabilities(some, model.globals)["word_topic"][:, columns]
        none = {name: values[:0] for name, values in rows.items()}
        parents = _parents(half.probabilities(none, model.globals).get("topic_parent"), columns)
        return {"document_topic": theta, "word_topic": known, **parents}


def _parents(every: Ints | None, columns: list[int]) -> dict[str, Ints]:
    """Return the parents of a tree's nodes by their places among those that are taken; nothing unless all are."""
    if every is None:
        return {}
    own, kept = every[columns], np.array(columns, dtype=np.int64)
    if not np.isin(own[own >= 0], kept).all():
        return {}
    return {"topic_parent": np.where(own >= 0, np.searchsorted(kept, own), own)}


def _rows(model: Model, shard: AnyShard) -> Arrays:
    """Read the rows of a shard's words."""
    cuts = np.searchsorted(shard.words, model.record.blocks)
    wanted = [number for number in range(len(model.blocks)) if cuts[number] < cuts[number + 1]] or [0]
    blocks = [tasks.Block(*model.blocks[number], model.rows(number), Delta()) for number in wanted]
    return tasks.gather(blocks, shard.words, whole=True)


def warm_references(source: WarmSource, corpus: Corpus, topics: int | None) -> list[WarmReference]:
    """Find what a model knows of each shard of a corpus.

    Parameters
    ----------
    source : WarmSource
        The model.
    corpus : Corpus
        What is to be fitted.
    topics : int or None
        How many topics the fit may have; None where there is no limit. Of a model with more, the largest are taken.

    Returns
    -------
    list of WarmReference
        One a shard.

    Raises
    ------
    AbsentError
        The model is gone.
    MismatchError
        It is another model by now, or has another vocabulary.
    """
    try:
        model = Model(source.url)
    except AbsentError as error:
        raise AbsentError(
            f"{error} (the run begins from it, and has no checkpoint yet); put it back, or start a new run"
        ) from None
    if digest_of(model.record.model_dump(mode="json")) != source.digest:
        raise MismatchError(f"{source.url}: it is not the model that the run was to begin from; start a new run")
    corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    ids, share = _occupied(model)
    largest = sorted(np.argsort(-share, kind="stable")[:topics])
    kept, held = tuple(int(one) for one in ids[largest]), float(share[largest].sum())
    own = {(one.documents, one.ids_sha256): number for number, one in reversed(list(enumerate(model.record.shards)))}
    found = []
    for number, row in enumerate(corpus.manifest.shards):
        key = (row.documents, row.ids_sha256)
        same = model.record.shards[number : number + 1]
        there = number if same and (same[0].documents, same[0].ids_sha256) == key else own.get(key)
        found.append(WarmReference(model.folder.address, there if model.fitted else None, kept, held))
    return found


def _occupied(model: Model) -> tuple[Ints, Floats]:
    """Return the ids of the topics that have tokens, ascending, which are columns, and their shares; of trees all."""
    few = {name: values[:1] for name, values in model.rows(0).items()}
    found = load_family(model.record.family).describe(few, model.globals, 1)
    there = (found.share > 0.0) | (not found.share.any()) | (found.parent is not None)
    ids, share = np.asarray(found.ids, dtype=np.int64)[there], np.asarray(found.share, dtype=np.float64)[there]
    order = np.argsort(ids)
    return ids[order], share[order]
