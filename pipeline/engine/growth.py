"""Growing data: a fit begins on a sample of the documents, and takes in more of them as topics form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models.registry import make_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.members import CONSENSUS
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.document_samples import DocumentSample
from collapsium.workers.families.family import FamilyOptions, Growing

# For each sample its n, one document in n, and the number of its sweeps; then all documents are swept
Samples: TypeAlias = tuple[tuple[int, int], ...]


# Samples of each plan; the first plan whose first sample is large enough is taken. These rules are measured on the page
# "Growing data".
PLANS: tuple[Samples, ...] = (((8, 12), (4, 6), (2, 4)), ((4, 12), (2, 8)))
MIN_DOCUMENTS = 2  # Documents for each topic that the first sample has, at least
MIN_TOKENS = 900  # Tokens for each topic that the first sample has, at least
# Share of the planned iterations that sweep samples, at most: topics converge over all documents
MAX_SHARE = 1 / 3


@dataclass(frozen=True)
class Growth:
    """Stages of a fit, each over a larger sample of the documents than the one before."""

    # First iteration of each stage, 0 for the first, and the n of its sample: one document in n. The last stage has all
    # documents.
    stages: tuple[tuple[int, int], ...]

    @staticmethod
    def of(samples: Samples) -> Growth:
        """Return the stages of samples, each with its number of sweeps, and all documents from then on."""
        stages, first = [], 0
        for every, count in samples:
            stages.append((first, every))
            # The first stage has the start too, which is iteration 0.
            first = max(first, 1) + count
        return Growth((*stages, (first, 1)))

    @staticmethod
    def from_record(record: Sequence[Sequence[int]] | None) -> Growth | None:
        """Return the stages that `run.json` has; None where it has none."""
        return None if record is None else Growth(tuple((first, every) for first, every in record))

    def record(self) -> list[list[int]]:
        """Return the stages as a run records them."""
        return [list(stage) for stage in self.stages]

    @property
    def complete_from(self) -> int:
        """First iteration over all documents."""
        return self.stages[-1][0]

    def every(self, iteration: int) -> int:
        """Return n if an iteration sweeps one document in n."""
        return next(every for first, every in reversed(self.stages) if first <= max(iteration, 0))

    def sample(self, stream: Stream, iteration: int, number: int = 0) -> DocumentSample | None:
        """Return the sample of documents that a round of sweeps visits."""
        every = self.every(iteration)
        before = every if number else self.every(iteration - 1)
        return None if every == before == 1 else DocumentSample(stream.at(purpose="grow"), every, before)


def planned_growth(
    family: str,
    config: FamilyOptions,
    grow: Literal["auto", "always", "never"],
    *,
    documents: int,
    tokens: int,
    complete_by: int,
    stochastic: bool = False,
    warm: bool = False,
    started: bool = False,
) -> Growth | None:
    """Return the stages of a new fit.

    `complete_by` is the first iteration whose state is saved as a model; `started` a fit that begins from proportions
    that all documents are to have.
    """
    if grow == "never":
        return None
    plans = [Growth.of(samples) for samples in PLANS]
    fitting = [plan for plan in plans if plan.complete_from - 1 <= MAX_SHARE * complete_by]
    fault = ""
    fitted = make_family(family, config)
    if not (isinstance(fitted, Growing) and fitted.can_grow()):
        fault = f"family '{family}' sweeps all documents under these options"
    elif stochastic:
        fault = "the stochastic schedule sweeps minibatches"
    elif started:
        fault = "the start gives all documents their topics"
    elif warm:
        fault = "a warm start has topics already"
    elif not fitting:
        least = math.ceil((min(plan.complete_from for plan in plans) - 1) / MAX_SHARE)
        fault = f"expected at least {least} iterations before the first saved state, found {complete_by}"
    if fault:
        if grow == "always":
            raise OptionError(f"'always' does not apply: {fault}", "grow")
        return None
    topics = max(int(config.model_dump().get("topics") or 1), 1)
    size = min(documents / (topics * MIN_DOCUMENTS), tokens / (topics * MIN_TOKENS))
    for plan in fitting:
        if plan.every(0) <= size:
            return plan
    # The last plan begins with the largest sample.
    return fitting[-1] if grow == "always" else None


def recorded_sample(record: JsonObject, iteration: int) -> DocumentSample | None:
    """Return the sample of documents that a checkpoint counts, from the record of its run; None for all documents."""
    # A consensus begins from members that have swept all documents.
    growth = None if record.get("combine") == CONSENSUS else Growth.from_record(record.get("growth"))
    every = 1 if growth is None else growth.every(iteration)
    return None if growth is None or every == 1 else growth.sample(Stream(record["seed"]), iteration)


def tokens_of_sample(corpus: Corpus, sample: DocumentSample | None) -> npt.NDArray[np.int64]:
    """Return the tokens of each word of the vocabulary in a sample or in all documents, shape (words,)."""
    if sample is None:
        return corpus.vocabulary.tokens
    tokens = np.zeros(corpus.manifest.vocabulary.words, dtype=np.int64)
    for reference in corpus.references:
        shard = sample.of(reference.load())
        np.add.at(tokens, shard.words[shard.position], shard.counts)
    return tokens
