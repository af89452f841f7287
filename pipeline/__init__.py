"""Runs: corpora, fits, models and workflows, with the public functions of Collapsium.

Corpora: `ingest`, `append`, `split`, `explode`, `simulate`; `sample_texts` and `write_sample_texts` for trying things
out. Fits: `estimate`, `fit`, `resume` and `compare`. Models: `Model` opens one; `topics`, `name_topics`, `edit`,
`topic_shares`, `expected_topics`, `label_topics`, `neighbour_distance`, `evaluate`, `measure`, `coherence`, `infer`,
`predict`, `examples`, `effects`, `table_effects`, `shares_by`, `shares_over`, `words_by`, `words_over`, `report`,
`plot` and `export`. Jobs: `batch`, `versions`, `rollback` and `serve`. Folders: `info` and `verify`. Most functions
have a command of the same name. `__init__.pyi` has the types of all options, for editors and mypy.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_HOMES = {
    "Outcome": "collapsium.pipeline.workflows.batch.job",
    "batch": "collapsium.pipeline.workflows.batch.job",
    "rollback": "collapsium.pipeline.workflows.batch.job",
    "versions": "collapsium.pipeline.workflows.batch.job",
    "Coherence": "collapsium.pipeline.analysis.metrics.topic_words",
    "Comparison": "collapsium.pipeline.workflows.compare",
    "Corpus": "collapsium.storage.corpus.corpus",
    "Edited": "collapsium.pipeline.engine.edit",
    "Effects": "collapsium.pipeline.analysis.regression",
    "Evaluation": "collapsium.pipeline.analysis.evaluate",
    "ExpectedTopic": "collapsium.pipeline.analysis.expected_topics",
    "Exported": "collapsium.pipeline.reporting.export",
    "GroupWords": "collapsium.pipeline.analysis.group_words",
    "Findings": "collapsium.pipeline.analysis.verify",
    "LabelTopics": "collapsium.pipeline.analysis.expected_topics",
    "Measurement": "collapsium.pipeline.analysis.metrics.measurement",
    "Model": "collapsium.pipeline.fitted_model",
    "Prediction": "collapsium.pipeline.reporting.predict",
    "Reconstruction": "collapsium.pipeline.analysis.evaluate",
    "Report": "collapsium.pipeline.reporting.page.report",
    "TimeShares": "collapsium.pipeline.analysis.topic_shares",
    "WordsOver": "collapsium.pipeline.analysis.words_over",
    "Topic": "collapsium.pipeline.models.topics",
    "Plan": "collapsium.pipeline.engine.plan",
    "TLS": "collapsium.pipeline.executors.base",
    "append": "collapsium.pipeline.corpora.append",
    "coherence": "collapsium.pipeline.analysis.metrics.topic_words",
    "compare": "collapsium.pipeline.workflows.compare",
    "edit": "collapsium.pipeline.engine.edit",
    "effects": "collapsium.pipeline.analysis.effects",
    "estimate": "collapsium.pipeline.engine.estimate",
    "evaluate": "collapsium.pipeline.analysis.evaluate",
    "expected_topics": "collapsium.pipeline.analysis.expected_topics",
    "examples": "collapsium.pipeline.analysis.snippets",
    "export": "collapsium.pipeline.reporting.export",
    "fit": "collapsium.pipeline.engine.fit",
    "explode": "collapsium.pipeline.corpora.ingest",
    "infer": "collapsium.pipeline.analysis.infer",
    "info": "collapsium.pipeline.analysis.info",
    "ingest": "collapsium.pipeline.corpora.ingest",
    "label_topics": "collapsium.pipeline.analysis.expected_topics",
    "measure": "collapsium.pipeline.analysis.metrics.measure",
    "name_topics": "collapsium.pipeline.analysis.naming",
    "neighbour_distance": "collapsium.pipeline.analysis.segments",
    "plot": "collapsium.pipeline.reporting.plots.run",
    "predict": "collapsium.pipeline.reporting.predict",
    "report": "collapsium.pipeline.reporting.page.report",
    "resume": "collapsium.pipeline.engine.fit",
    "sample_texts": "collapsium.pipeline.workflows.sample_texts",
    "serve": "collapsium.pipeline.workflows.serve",
    "shares_by": "collapsium.pipeline.analysis.effects",
    "shares_over": "collapsium.pipeline.analysis.effects",
    "simulate": "collapsium.pipeline.corpora.simulate",
    "split": "collapsium.pipeline.corpora.split",
    "table_effects": "collapsium.pipeline.analysis.effects",
    "topic_shares": "collapsium.pipeline.analysis.topic_shares",
    "topics": "collapsium.pipeline.models.topics",
    "verify": "collapsium.pipeline.analysis.verify",
    "words_by": "collapsium.pipeline.analysis.group_words",
    "words_over": "collapsium.pipeline.analysis.words_over",
    "write_sample_texts": "collapsium.pipeline.workflows.sample_texts",
}

__all__ = [
    "TLS",
    "Coherence",
    "Comparison",
    "Corpus",
    "Edited",
    "Effects",
    "Evaluation",
    "ExpectedTopic",
    "Exported",
    "Findings",
    "GroupWords",
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
    "WordsOver",
    "append",
    "batch",
    "coherence",
    "compare",
    "edit",
    "effects",
    "estimate",
    "evaluate",
    "examples",
    "expected_topics",
    "explode",
    "export",
    "fit",
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
    "serve",
    "shares_by",
    "shares_over",
    "simulate",
    "split",
    "table_effects",
    "topic_shares",
    "topics",
    "verify",
    "versions",
    "words_by",
    "words_over",
    "write_sample_texts",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `collapsium --help` does not load the compiler."""
    if name not in _HOMES:
        options = importlib.import_module("collapsium.workers.options")
        if name in options.FORMER_FUNCTIONS:
            present = options.FORMER_FUNCTIONS[name]
            options.warn_renamed(options.renaming(name, present))
            return getattr(importlib.import_module(_HOMES[present]), present)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_imported(_HOMES[name]), name)


def _imported(module: str) -> ModuleType:
    """Import a module; in a notebook, with a line while that takes long."""
    if module not in sys.modules and "IPython" in sys.modules:
        progress = importlib.import_module("collapsium.pipeline.monitoring.progress")
        if progress.in_notebook():
            with progress.shown("loading Collapsium"):
                return importlib.import_module(module)
    return importlib.import_module(module)


def __dir__() -> list[str]:
    return __all__
