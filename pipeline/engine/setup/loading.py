"""Read the shards of a corpus on the workers that will sweep them, once for all members of an ensemble."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from collapsium.pipeline.engine.plan import Scratch
from collapsium.pipeline.engine.save import documents_of
from collapsium.pipeline.engine.setup.computed_initialisation import ComputedStart
from collapsium.pipeline.engine.setup.initialisation import Start, computed_topics
from collapsium.pipeline.engine.setup.inputs import design_of, labels_of, reached, seeds_of, weights_of
from collapsium.pipeline.engine.setup.request import HeldoutReference, Request, align
from collapsium.pipeline.engine.setup.warm_start import WarmStart
from collapsium.pipeline.engine.state import Growth, Problem, Shards, block_bounds, waiting_deltas
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.models.registry import make_family
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import FILE_START, AnyFamily, Summary
from collapsium.workers.shard_loading import ShardOnDisk, load_shard, open_shard, store_shard
from collapsium.workers.tasks import WarmSource as TaskWarmSource


def _ignore(text: str) -> None:
    """Receive a line, and do nothing."""


def heldout_references(request: Request) -> list[HeldoutReference]:
    """Return references to the held-out pairs of each training shard; none where nothing is held out."""
    if request.heldout is None:
        return []
    request.heldout.require_vocabulary_of(request.corpus.manifest.vocabulary.words_sha256, request.corpus.url)
    return align(documents_of(request.corpus), request.heldout, request.corpus.url)


class LoadedCorpus:
    """The shards of a corpus on the workers, and the problems on them: one for each seed."""

    def __init__(
        self,
        request: Request,
        heldouts: Sequence[HeldoutReference],
        executor: Executor,
        scratch: Scratch,
        warm: Sequence[WarmStart] = (),
        start: Start | None = None,
        notice: Callable[[str], None] = _ignore,
    ) -> None:
        self._request, self._heldouts, self._executor = request, heldouts, executor
        self._scratch, self._warm, self._start, self._notice = scratch, warm, start, notice
        manifest = request.corpus.manifest
        sizes = (manifest.documents, manifest.vocabulary.words, manifest.tokens, manifest.pairs)
        shards = len(manifest.shards)
        source = request.warm
        self._summary = Summary(
            *sizes,
            shards=shards,
            stochastic=request.stochastic,
            iterations=request.planned,
            warm=0 if source is None else max(model.topics for model in (source, *source.members)),
            labels=labels_of(request.corpus, request.family, request.config),
            growing=0 if request.growth is None else request.growth.complete_from,
            seeds=seeds_of(request.corpus, request.config),
            start=_start_topics(request, start),
            most_tokens=int(request.corpus.vocabulary.tokens.max(initial=0)),
        )
        self._footprint = make_family(request.family, request.config).footprint(self._summary)
        self._lock, self._reads = threading.Lock(), 0
        self._design = design_of(request.corpus, request.config, executor)
        self._shards, self._held = self._read()
        if self._design is not None:
            self._summary = replace(self._summary, design=reached(self._design, executor, self._shards))
        weights = weights_of(request.corpus, request.config, executor, self._shards)
        self._summary = replace(self._summary, weights=weights)

    def problem(self, seed: int, member: int = 0) -> Problem:
        """Return the problem of a seed."""
        source = self._request.warm
        summary = self._summary if source is None else replace(self._summary, warm=source.member(member).topics)
        start = self._warm[member if len(self._warm) > 1 else 0] if self._warm else None
        warm = None if self._start is None else self._start.shards
        return self._problem(seed, summary, start, warm, self._request.growth)

    def problem_from(self, seed: int, start: WarmStart | None = None, topics: int = 1) -> Problem:
        """Return the problem of a fit that begins from the members' consensus."""
        return self._problem(seed, replace(self._summary, warm=topics, start=0, growing=0), start, None, None)

    def _problem(
        self,
        seed: int,
        summary: Summary,
        start: WarmStart | None,
        warm: Sequence[TaskWarmSource | Future[TaskWarmSource]] | None,
        growth: Growth | None,
    ) -> Problem:
        request, stream = self._request, Stream(seed)
        family = make_family(request.family, request.config)
        with self._lock:
            shards, held, load = list(self._shards), list(self._held), self._loader()
        computed = request.start if summary.start else None
        if computed is not None and computed.kind != FILE_START:
            warm = ComputedStart(computed, summary.start, shards, self._executor, stream, self._notice)
        global_state = family.initialise(summary, stream.at(purpose="initialise"))
        if start is not None:
            global_state, warm = start.begin(request.family, family, global_state)
        return Problem(
            request.family,
            family,
            request.config,
            shards,
            held,
            block_bounds(self._summary.words, self._footprint),
            stream,
            self._executor,
            global_state,
            scratch=self._scratch,
            local_sweeps=request.limits.sweeps_per_exchange,
            load=load,
            warm=warm,
            tokens=summary.tokens,
            growth=growth,
            waiting_deltas=waiting_deltas(self._summary.words, self._footprint),
        )

    def _loader(self) -> Callable[[], tuple[Shards, Shards]]:
        """Return a function that restores the shards of a problem; the first of several problems has them read."""
        seen = self._reads

        def load() -> tuple[Shards, Shards]:
            nonlocal seen
            with self._lock:
                if seen == self._reads:
                    self._shards, self._held = self._read()
                    self._reads += 1
                seen = self._reads
                return list(self._shards), list(self._held)

        return load

    def _read(self) -> tuple[Shards, Shards]:
        """Read each shard in its process, so that an error in them comes before a run is made."""
        executor, references = self._executor, self._request.corpus.references
        copies = 0 if self._summary.stochastic else 1 if self._scratch.replaced else 2
        reserve = [self._footprint.pair] * copies
        model = make_family(self._request.family, self._request.config)
        packed = None if self._design is None else self._design.packed
        processes = [number * executor.processes // len(references) for number in range(len(references))]
        shards = [
            executor.submit(load_shard, reference, self._scratch.of(number), reserve, model, packed, process=process)
            for number, (reference, process) in enumerate(zip(references, processes, strict=True))
        ]
        held = [
            executor.submit(load_heldout, reference, self._scratch.of(number), model, process=process)
            for number, (reference, process) in enumerate(zip(self._heldouts, processes, strict=False))
        ]
        executor.collect([executor.submit(count_tokens, shard) for shard in (*shards, *held)])
        return shards, held


def _start_topics(request: Request, start: Start | None) -> int:
    """Return the topics that documents begin with; 0 for a random start."""
    if request.start is None:
        return 0
    if request.start.kind != FILE_START:
        return computed_topics(request.config)
    # A run that continues from a checkpoint does not read its file again; its global state is the checkpoint's.
    return 1 if start is None else start.topics


def load_heldout(
    reference: HeldoutReference, scratch: str | None, model: AnyFamily | None = None
) -> AnyShard | ShardOnDisk:
    """Read the held-out pairs of a training shard, with segments if the family uses them."""
    return store_shard(reference.load(segmented=model is not None and model.uses_segments), scratch)


def count_tokens(shard: AnyShard | ShardOnDisk) -> int:
    """Return the number of a shard's tokens."""
    return open_shard(shard).tokens
