"""The number of topics: how much each number gains over the one before, a recommendation with its reason, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.metrics.measure import document_sums
from collapsium.pipeline.analysis.scoring import Scored
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.fitted_model import load_blocks
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import stability, topics
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.data_types import JsonObject

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]

WORDS = 6  # Words of each topic in frames
# Nats per token that twice as many topics must gain: perplexity falls by 2%. On text scores rise far beyond numbers of
# topics that a person reads, by ever less.
LEAST_GAIN = 0.02
ERRORS = 2.0  # Standard errors by which a gain must exceed 0
LEAST_SUPPORT = 0.5  # Share of the topics that another seed must find again, for topics that are to be read


@dataclass(frozen=True)
class Recommendation:
    """The recommended number of topics, with the reason in plain English."""

    topics: int
    reason: str
    reference: str = ""  # The number that a family without redundant topics finds; empty where it was not fitted

    def __str__(self) -> str:
        return f"recommended: {self.topics} topics. {self.reason}" + (f" {self.reference}" if self.reference else "")


@dataclass(frozen=True)
class DocumentScores:
    """Log probabilities of documents' held-out tokens, mean over the restarts, and the numbers of these tokens."""

    logs: Floats  # (documents,), in nats
    tokens: Floats  # (documents,)

    def mean(self, less: Floats | float = 0.0) -> tuple[float, float]:
        """Return the mean over the tokens, of the difference from other documents' logs, and its standard error.

        The error is for a ratio of sums over documents, whose tokens depend on each other.
        """
        logs, total = self.logs - less, float(self.tokens.sum())
        score = float(logs.sum()) / total
        return score, math.sqrt(float(((logs - score * self.tokens) ** 2).sum())) / total


def document_scores(models: Sequence[Model], heldout: str, executor: Executor) -> DocumentScores:
    """Score the held-out tokens of each document by each model."""
    scored = Scored(Corpus(heldout), True)
    submit, logs, tokens = scored.submit(scored.held(models[0]), executor, 0), [], np.zeros(0)
    for model in models:
        shards = [executor.submit(document_sums, shard) for shard in submit(model, load_blocks(model, executor))]
        sums = executor.collect(shards)
        logs.append(np.concatenate([of_shard for of_shard, _ in sums]))
        tokens = np.concatenate([of_shard for _, of_shard in sums])
    return DocumentScores(np.mean(logs, axis=0), tokens)


def studied(rows: Sequence[JsonObject], urls: Mapping[str, Sequence[str]], heldout: str, executor: Executor) -> None:
    """Add to the rows of each family, by increasing K: the gain over the last K, what another seed finds, and words."""
    before: dict[str, tuple[int, DocumentScores]] = {}
    for row in sorted(rows, key=lambda row: row["topics"] or 0):
        models = [Model(url) for url in urls[row["cell"]]]
        scores = document_scores(models, heldout, executor)
        row["document_error"] = scores.mean()[1]
        if row["family"] in before and row["topics"]:
            fewer, last = before[row["family"]]
            row["gain"], row["gain_error"] = (
                figure / math.log2(row["topics"] / fewer) for figure in scores.mean(last.logs)
            )
        before[row["family"]] = row["topics"], scores
        others = [stability(model, [other for other in models if other is not model]) for model in models]
        each = [topic for of_model in others for topic in of_model.values()]
        if each:
            row["stability"] = float(np.mean([topic.value for topic in each]))
            row["found_again"] = float(np.mean([topic.support for topic in each])) / (len(models) - 1)
        best = models[int(np.argmax(row["scores"]))]
        row["remark"] = best.family.remark(best.global_state)
        row["words"] = [[word for word, _ in topic.words] for topic in topics(best.folder.url, WORDS)]


def recommended(rows: Sequence[Row]) -> Recommendation:
    """Recommend a number of topics of the first family: the last that gains much, whose topics another seed finds."""
    family = rows[0]["family"]
    candidates = sorted((row for row in rows if row["family"] == family), key=lambda row: int(row["topics"]))
    chosen = 0
    while chosen + 1 < len(candidates) and _gains(candidates[chosen + 1]):
        chosen += 1
    row, reasons = candidates[chosen], []
    if chosen + 1 < len(candidates):
        following = candidates[chosen + 1]
        least = f"less than {LEAST_GAIN:g}" if following["gain"] < LEAST_GAIN else "no more than two standard errors"
        reasons.append(
            f"From {row['topics']} to {following['topics']}, twice as many topics gain {_gain_text(following)}, "
            f"{least}."
        )
    elif len(candidates) > 1:
        reasons.append(
            f"Twice as many topics still gain {_gain_text(row)}; larger numbers predict better, as far as you can read "
            "them."
        )
    stable = [row for row in candidates[: chosen + 1] if row.get("found_again", 1.0) >= LEAST_SUPPORT]
    if stable and stable[-1] is not row:
        reasons.append(
            f"But another seed finds only {row['found_again']:.0%} of {row['topics']} topics again, and "
            f"{stable[-1]['found_again']:.0%} of {stable[-1]['topics']}."
        )
        row = stable[-1]
    elif "found_again" in row:
        reasons.append(f"Another seed finds {row['found_again']:.0%} of the {row['topics']} topics again.")
    coherent = max(candidates, key=lambda row: row["npmi"] or -1.0)
    if coherent is not row and coherent["npmi"] is not None:
        reasons.append(f"Coherence is highest at {coherent['topics']} topics ({coherent['npmi']:.3f}).")
    figures = [f"{name} {row[name]:.3f}" for name in ("npmi", "exclusivity", "dispersion") if row.get(name) is not None]
    reasons.append(f"There, {', '.join(figures)}." if figures else "")
    return Recommendation(int(row["topics"]), " ".join(filter(None, reasons)), _reference_text(rows, family))


def _gains(row: Row) -> bool:
    return bool(row["gain"] >= LEAST_GAIN and row["gain"] > ERRORS * row["gain_error"])


def _gain_text(row: Row) -> str:
    return f"{row['gain']:.3f} ± {row['gain_error']:.3f} nats per token"


def _reference_text(rows: Sequence[Row], family: str) -> str:
    """Return a sentence on the number of topics that the fit found which removes redundant ones."""
    reference = next((row for row in rows if row["family"] != family), None)
    if reference is None:
        return ""
    if reference["remark"] is not None:
        return f"{reference['family']}: {reference['remark']}."
    return f"{reference['family']}, with {reference['topics']} topics at most, finds {reference['topics_99']:.0f}."
