"""Runs: corpora, fits, models and workflows, with the public functions of Collapsium.

Corpora: `ingest`, `append`, `split`, `flatten`, `simulate`; `sample_texts` and `write_sample_texts` for trying things
out. Fits: `estimate`, `fit`, `resume` and `compare`. Models: `Model` opens one; `topics`, `name_topics`, `edit`,
`topic_shares`, `expected_topics`, `label_topics`, `neighbour_distance`, `evaluate`, `measure`, `coherence`, `infer`,
`predict`, `report`, `plot` and `export`. Jobs: `batch`, `versions` and `rollback`. Folders: `info` and `verify`. Most
functions have a command of the same name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collapsium.pipeline.analysis.coherence import Coherence, coherence
    from collapsium.pipeline.analysis.evaluate import Evaluation, Reconstruction, evaluate
    from collapsium.pipeline.analysis.infer import infer
    from collapsium.pipeline.analysis.info import info
    from collapsium.pipeline.analysis.labels.expected_topics import (
        ExpectedTopic,
        LabelTopics,
        expected_topics,
        label_topics,
    )
    from collapsium.pipeline.analysis.metrics.measure import measure
    from collapsium.pipeline.analysis.metrics.measurement import Measurement
    from collapsium.pipeline.analysis.naming import name_topics
    from collapsium.pipeline.analysis.segments import neighbour_distance
    from collapsium.pipeline.analysis.topic_shares import TimeShares, topic_shares
    from collapsium.pipeline.analysis.topics import Topic, topics
    from collapsium.pipeline.analysis.verify import Findings, verify
    from collapsium.pipeline.corpora import append
    from collapsium.pipeline.corpora.ingest import flatten, ingest, split
    from collapsium.pipeline.corpora.simulate import simulate
    from collapsium.pipeline.engine.edit.edit import Edited, edit
    from collapsium.pipeline.engine.fit import fit, resume
    from collapsium.pipeline.engine.resources.estimate import estimate
    from collapsium.pipeline.engine.resources.plan import Plan
    from collapsium.pipeline.executors.base import TLS
    from collapsium.pipeline.models.model import Model
    from collapsium.pipeline.reporting.export import Exported, export
    from collapsium.pipeline.reporting.page.report import Report, report
    from collapsium.pipeline.reporting.plots.run import plot
    from collapsium.pipeline.reporting.predict import Prediction, predict
    from collapsium.pipeline.workflows.batch.job import Outcome, batch, rollback, versions
    from collapsium.pipeline.workflows.compare.compare import compare
    from collapsium.pipeline.workflows.compare.runner import Comparison
    from collapsium.pipeline.workflows.demo.sample import sample_texts, write_sample_texts
    from collapsium.storage.corpus.corpus import Corpus

_HOMES = {
    "Outcome": "collapsium.pipeline.workflows.batch.job",
    "batch": "collapsium.pipeline.workflows.batch.job",
    "rollback": "collapsium.pipeline.workflows.batch.job",
    "versions": "collapsium.pipeline.workflows.batch.job",
    "Coherence": "collapsium.pipeline.analysis.coherence",
    "Comparison": "collapsium.pipeline.workflows.compare.runner",
    "Corpus": "collapsium.storage.corpus.corpus",
    "Edited": "collapsium.pipeline.engine.edit.edit",
    "Evaluation": "collapsium.pipeline.analysis.evaluate",
    "ExpectedTopic": "collapsium.pipeline.analysis.labels.expected_topics",
    "Exported": "collapsium.pipeline.reporting.export",
    "Findings": "collapsium.pipeline.analysis.verify",
    "LabelTopics": "collapsium.pipeline.analysis.labels.expected_topics",
    "Measurement": "collapsium.pipeline.analysis.metrics.measurement",
    "Model": "collapsium.pipeline.models.model",
    "Prediction": "collapsium.pipeline.reporting.predict",
    "Reconstruction": "collapsium.pipeline.analysis.evaluate",
    "Report": "collapsium.pipeline.reporting.page.report",
    "TimeShares": "collapsium.pipeline.analysis.topic_shares",
    "Topic": "collapsium.pipeline.analysis.topics",
    "Plan": "collapsium.pipeline.engine.resources.plan",
    "TLS": "collapsium.pipeline.executors.base",
    "append": "collapsium.pipeline.corpora.append",
    "coherence": "collapsium.pipeline.analysis.coherence",
    "compare": "collapsium.pipeline.workflows.compare.compare",
    "edit": "collapsium.pipeline.engine.edit.edit",
    "estimate": "collapsium.pipeline.engine.resources.estimate",
    "evaluate": "collapsium.pipeline.analysis.evaluate",
    "expected_topics": "collapsium.pipeline.analysis.labels.expected_topics",
    "export": "collapsium.pipeline.reporting.export",
    "fit": "collapsium.pipeline.engine.fit",
    "flatten": "collapsium.pipeline.corpora.ingest",
    "infer": "collapsium.pipeline.analysis.infer",
    "info": "collapsium.pipeline.analysis.info",
    "ingest": "collapsium.pipeline.corpora.ingest",
    "label_topics": "collapsium.pipeline.analysis.labels.expected_topics",
    "measure": "collapsium.pipeline.analysis.metrics.measure",
    "name_topics": "collapsium.pipeline.analysis.naming",
    "neighbour_distance": "collapsium.pipeline.analysis.segments",
    "plot": "collapsium.pipeline.reporting.plots.run",
    "predict": "collapsium.pipeline.reporting.predict",
    "report": "collapsium.pipeline.reporting.page.report",
    "resume": "collapsium.pipeline.engine.fit",
    "sample_texts": "collapsium.pipeline.workflows.demo.sample",
    "simulate": "collapsium.pipeline.corpora.simulate",
    "split": "collapsium.pipeline.corpora.ingest",
    "topic_shares": "collapsium.pipeline.analysis.topic_shares",
    "topics": "collapsium.pipeline.analysis.topics",
    "verify": "collapsium.pipeline.analysis.verify",
    "write_sample_texts": "collapsium.pipeline.workflows.demo.sample",
}

__all__ = [
    "TLS",
    "Coherence",
    "Comparison",
    "Corpus",
    "Edited",
    "Evaluation",
    "ExpectedTopic",
    "Exported",
    "Findings",
    "LabelTopics",
    "Measurement",
    "Model",
    "Outcome",
    "Plan",
    "Prediction",
    "Reconstruction",
    "Report",
    "TimeShares",
    "Topic",
    "append",
    "batch",
    "coherence",
    "compare",
    "edit",
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
    "measure",
    "name_topics",
    "neighbour_distance",
    "plot",
    "predict",
    "report",
    "resume",
    "rollback",
    "sample_texts",
    "simulate",
    "split",
    "topic_shares",
    "topics",
    "verify",
    "versions",
    "write_sample_texts",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `collapsium --help` does not load the compiler."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
