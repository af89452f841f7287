"""Choose the tokens that models are scored on: held-out tokens of training documents, or parts of unseen documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collapsium.pipeline.analysis.scoring.predictive import Predicted, Submit, predict_pairs
from collapsium.pipeline.engine.model_io.save import documents_of
from collapsium.pipeline.engine.setup.heldout import HeldoutReference, align
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.families.model import Model
from collapsium.storage.building.split import split_documents
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.shard import Shard
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.shard_loading import document_parts

HELDOUT = (
    "document completion: mean over the held-out tokens of the training documents of log sum_k theta_dk phi_kw, "
    "in nats; perplexity = exp(-score)"
)
UNSEEN = (
    "document completion of unseen documents: proportions fitted to a random half of each document's tokens with the "
    "topics held fixed; mean over the tokens of the other half of log sum_k theta_dk phi_kw, in nats; perplexity = "
    "exp(-score)"
)
OBSERVED = (
    "document completion of unseen documents: proportions fitted to the documents' tokens with the topics held fixed; "
    "mean over further tokens, held out of the same documents, of log sum_k theta_dk phi_kw, in nats; perplexity = "
    "exp(-score)"
)


@dataclass(frozen=True)
class Scored:
    """Documents and tokens to score."""

    corpus: Corpus  # Held-out tokens of the training documents, or unseen documents
    known: bool  # True for held-out tokens of the training documents
    # Further tokens of unseen documents, which are scored while all tokens of `corpus` are fitted
    scored: Corpus | None = None

    @property
    def tokens(self) -> Corpus:
        """The corpus whose tokens are scored."""
        return self.scored or self.corpus

    def held(self, first: Model) -> list[HeldoutReference] | None:
        """Return the scored tokens of each fitted shard; None if they are halves of its own documents."""
        if self.known:
            return align(first.record.shards, self.corpus, first.folder.url)
        if self.scored is None:
            return None
        return align(documents_of(self.corpus), self.scored, self.corpus.url)

    @property
    def definition(self) -> str:
        """The score's definition."""
        return HELDOUT if self.known else UNSEEN if self.scored is None else OBSERVED

    def submit(self, held: Sequence[HeldoutReference] | None, executor: Executor, seed: int) -> Submit:
        """Return a function that submits a task for each shard, which predicts the scored tokens."""

        def submit(model: Model, blocks: list[Future[tasks.Block]]) -> list[Future[Predicted]]:
            url, references = model.folder.address, self.corpus.references
            if held is None:
                return _submit_halves(url, references, blocks, executor, seed)
            if self.known:
                return [executor.submit(_predict_heldout, url, reference, blocks) for reference in held]
            pairs = zip(references, held, strict=True)
            return [executor.submit(_predict_observed, url, *pair, blocks, seed) for pair in pairs]

        return submit


def _submit_halves(
    url: str, references: Sequence[ShardReference], blocks: list[Future[tasks.Block]], executor: Executor, seed: int
) -> list[Future[Predicted]]:
    submitted, first = [], 0
    for reference in references:
        submitted.append(executor.submit(_predict_unseen, url, reference, first, blocks, seed))
        first += reference.record.documents
    return submitted


def _predict_heldout(url: str, reference: HeldoutReference, blocks: list[tasks.Block]) -> Predicted:
    model = Model(url)
    local = model.documents(reference.number)
    held = reference.load(segmented=model.shard_model.uses_segments)
    return predict_pairs(model.shard_model, held, local, blocks, model.global_state)


def _predict_unseen(url: str, reference: ShardReference, first: int, blocks: list[tasks.Block], seed: int) -> Predicted:
    """Fit proportions to one half of each document's tokens and predict the other; empty documents have no pairs."""
    model = Model(url)
    known, scored = split_documents(reference.documents(), first, 0.5, seed)
    stream = Stream(seed, "unseen")
    shard, held = (Shard.of(reference.number, part, **document_parts(model.shard_model)) for part in (known, scored))
    local = tasks.fold_in(model.shard_model, shard, blocks, model.global_state, stream)
    return predict_pairs(model.shard_model, held, local, blocks, model.global_state)


def _predict_observed(
    url: str, reference: ShardReference, scored: HeldoutReference, blocks: list[tasks.Block], seed: int
) -> Predicted:
    """Fit proportions to all tokens of a shard's documents and predict further tokens of the same documents."""
    model = Model(url)
    parts = document_parts(model.shard_model)
    held = scored.load(segmented=parts["segmented"])
    local = tasks.fold_in(
        model.shard_model, reference.load(**parts), blocks, model.global_state, Stream(seed, "unseen")
    )
    return predict_pairs(model.shard_model, held, local, blocks, model.global_state)
