"""What a run is: configuration, model families, the loop, progress, evaluation and the commands.

The public surface is small: `ingest`, `append`, `split`, `flatten`, `simulate`, `estimate`, `fit`, `compare`, `topics`,
`evaluate`, `infer`, `predict`, `info` and `verify` do what the commands of the same names do, `resume` what ``fit
--resume`` does, `coherence` what ``evaluate --coherence`` does, `expected_topics` and `label_topics` what ``topics
--given`` and ``topics --labels`` do; `report`, `plot` and `export` show what was fitted, and `neighbour_distance` says
how far segments lie apart; `batch` makes all of it a job, with `versions` and `rollback`; `Model` opens what `fit`
made. `topic_shares` gives the topics' shares by period that ``plot --what time`` draws.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collapsar.pipeline.appending import append
    from collapsar.pipeline.batching import Outcome, batch, rollback, versions
    from collapsar.pipeline.cohering import Coherence, coherence
    from collapsar.pipeline.comparing import Comparison, compare
    from collapsar.pipeline.comparing_unseen import UnseenComparison, compare_unseen
    from collapsar.pipeline.describing import Topic, topics
    from collapsar.pipeline.evaluation import Evaluation, Reconstruction, evaluate
    from collapsar.pipeline.executor import TLS
    from collapsar.pipeline.expecting import ExpectedTopic, LabelTopics, expected_topics, label_topics
    from collapsar.pipeline.exporting import Exported, export
    from collapsar.pipeline.fitting import fit, resume
    from collapsar.pipeline.inference import infer
    from collapsar.pipeline.inspection import info
    from collapsar.pipeline.intake import flatten, ingest, split
    from collapsar.pipeline.opening import Model
    from collapsar.pipeline.planning import Plan, estimate
    from collapsar.pipeline.predicting import Prediction, predict
    from collapsar.pipeline.reporting.page import Report, report
    from collapsar.pipeline.runplots import plot
    from collapsar.pipeline.segmentshares import neighbour_distance
    from collapsar.pipeline.simulation import simulate
    from collapsar.pipeline.timeshares import TimeShares, topic_shares
    from collapsar.pipeline.verifying import Findings, verify
    from collapsar.storage.corpus import Corpus

_HOMES = {
    "Outcome": "collapsar.pipeline.batching",
    "batch": "collapsar.pipeline.batching",
    "rollback": "collapsar.pipeline.batching",
    "versions": "collapsar.pipeline.batching",
    "Coherence": "collapsar.pipeline.cohering",
    "Comparison": "collapsar.pipeline.comparing",
    "Corpus": "collapsar.storage.corpus",
    "Evaluation": "collapsar.pipeline.evaluation",
    "ExpectedTopic": "collapsar.pipeline.expecting",
    "Exported": "collapsar.pipeline.exporting",
    "Findings": "collapsar.pipeline.verifying",
    "LabelTopics": "collapsar.pipeline.expecting",
    "Model": "collapsar.pipeline.opening",
    "Prediction": "collapsar.pipeline.predicting",
    "Reconstruction": "collapsar.pipeline.evaluation",
    "Report": "collapsar.pipeline.reporting.page",
    "TimeShares": "collapsar.pipeline.timeshares",
    "Topic": "collapsar.pipeline.describing",
    "UnseenComparison": "collapsar.pipeline.comparing_unseen",
    "Plan": "collapsar.pipeline.planning",
    "TLS": "collapsar.pipeline.executor",
    "append": "collapsar.pipeline.appending",
    "coherence": "collapsar.pipeline.cohering",
    "compare": "collapsar.pipeline.comparing",
    "compare_unseen": "collapsar.pipeline.comparing_unseen",
    "estimate": "collapsar.pipeline.planning",
    "evaluate": "collapsar.pipeline.evaluation",
    "expected_topics": "collapsar.pipeline.expecting",
    "export": "collapsar.pipeline.exporting",
    "fit": "collapsar.pipeline.fitting",
    "flatten": "collapsar.pipeline.intake",
    "infer": "collapsar.pipeline.inference",
    "info": "collapsar.pipeline.inspection",
    "ingest": "collapsar.pipeline.intake",
    "label_topics": "collapsar.pipeline.expecting",
    "neighbour_distance": "collapsar.pipeline.segmentshares",
    "plot": "collapsar.pipeline.runplots",
    "predict": "collapsar.pipeline.predicting",
    "report": "collapsar.pipeline.reporting.page",
    "resume": "collapsar.pipeline.fitting",
    "simulate": "collapsar.pipeline.simulation",
    "split": "collapsar.pipeline.intake",
    "topic_shares": "collapsar.pipeline.timeshares",
    "topics": "collapsar.pipeline.describing",
    "verify": "collapsar.pipeline.verifying",
}

__all__ = [
    "TLS",
    "Coherence",
    "Comparison",
    "Corpus",
    "Evaluation",
    "ExpectedTopic",
    "Exported",
    "Findings",
    "LabelTopics",
    "Model",
    "Outcome",
    "Plan",
    "Prediction",
    "Reconstruction",
    "Report",
    "TimeShares",
    "Topic",
    "UnseenComparison",
    "append",
    "batch",
    "coherence",
    "compare",
    "compare_unseen",
    "estimate",
    "evaluate",
    "expected_topics",
    "export",
    "fit",
    "flatten",
    "infer",
    "info",
    "ingest",
    "label_topics",
    "neighbour_distance",
    "plot",
    "predict",
    "report",
    "resume",
    "rollback",
    "simulate",
    "split",
    "topic_shares",
    "topics",
    "verify",
    "versions",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `collapsar --help` shall not wait for the compiler."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
