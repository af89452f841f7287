"""Score complete documents, each fitted to the very tokens that are scored, for comparison with papers that do so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.shard import Shard
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.shard_loading import document_parts

IN_DOCUMENT = (
    "in-document likelihood: paths and proportions of each document are fitted to all its tokens with the topics held "
    "fixed, and the same tokens are scored; sum over documents of log sum_c q(c) prod_m sum_l theta_l phi_{c_l} "
    "(section 4.1 of Wang and Blei 2009; for topics without a tree log prod_m sum_k theta_k phi_k), divided by the "
    "number of tokens, in nats. Not comparable with scores of held-out tokens"
)
AVERAGED = "; of an ensemble, the log of the mean over its members of each document's probability"


@dataclass(frozen=True, slots=True)
class Logs:
    """Log probabilities of a shard's documents in nats, and the number of its tokens."""

    logs: npt.NDArray[np.float64]
    tokens: int

    def __sizeof__(self) -> int:
        return self.logs.nbytes


def score_in_document(
    models: Sequence[tuple[Model, list[Future[tasks.Block]]]], corpus: Corpus, executor: Executor, seed: int
) -> tuple[float | None, int, list[float]]:
    """Score documents whose proportions are fitted to all their tokens.

    Returns score: Score of the models' mean prediction, in nats a token; None without tokens; tokens: Number of scored
    tokens; members: Score of each model
    """
    each: list[list[Logs]] = []
    for model, blocks in models:
        waiting = [executor.submit(_logs, model.folder.address, one, blocks, seed) for one in corpus.references]
        each.append(executor.collect(waiting))
    tokens = sum(one.tokens for one in each[0])
    if not tokens:
        return None, 0, []
    members = [math.fsum(float(one.logs.sum()) for one in shards) / tokens for shards in each]
    means = [
        reduce(np.logaddexp, [one.logs for one in shards]) - math.log(len(each)) for shards in zip(*each, strict=True)
    ]
    return math.fsum(float(one.sum()) for one in means) / tokens, tokens, members


def _logs(url: str, reference: ShardReference, blocks: list[tasks.Block], seed: int) -> Logs:
    model = Model(url)
    shard = Shard.of(reference.number, reference.documents(), **document_parts(model.shard_model))
    if not shard.pairs:
        return Logs(np.zeros(shard.documents), 0)
    local = tasks.fold_in(model.shard_model, shard, blocks, model.global_state, Stream(seed, "unseen"))
    rows = tasks.gather(blocks, shard.words, complete=True)
    table = model.shard_model.predict(shard, local, rows, model.global_state)
    if "document_log" in table:
        logs = np.where(shard.lengths > 0, table["document_log"], 0.0)
    else:
        owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
        logs = np.bincount(owner, shard.counts * special.log(table["probability"]), shard.documents)
    return Logs(np.asarray(logs, dtype=np.float64), shard.tokens)
