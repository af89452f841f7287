"""Declared fields of records on disk and of events, which the hand-written pages of the reference must name."""

from __future__ import annotations

from pydantic import BaseModel

from collapsium.pipeline.workflows.batch import journal
from collapsium.storage.building import ingest_record
from collapsium.storage.corpus import lineage, manifest
from collapsium.storage.io import arrays, run_lock
from collapsium.storage.runs import checkpoint, comparison, model, published, run, summary, topic_names
from collapsium.storage.runs import comparison as comparison_records


def names(record: type[BaseModel]) -> list[str]:
    """Return the fields of a record without those that every record has."""
    return [name for name in record.model_fields if name not in ("format", "version")]


FIELDS = [
    ("formats.md", "## Corpus", names(manifest.Manifest)),
    ("formats.md", "## Corpus", names(manifest.ShardRecord)),
    ("formats.md", "## Corpus", names(manifest.VectorsRecord)),
    ("formats.md", "## Corpus", names(lineage.Step)),
    ("formats.md", "## Run", names(run.RunRecord)),
    ("formats.md", "## Run", names(run.CorpusPlace)),
    ("formats.md", "## Run", names(run.LimitsRecord)),
    ("formats.md", "## Checkpoint", names(checkpoint.CheckpointRecord)),
    ("formats.md", "## Model", names(model.ModelRecord)),
    ("formats.md", "## Model", names(summary.SummaryRecord)),
    ("formats.md", "## Comparison", names(comparison_records.ComparisonRecord)),
    ("formats.md", "## Batch job", names(published.VersionRecord)),
    ("formats.md", "## Batch job", names(journal._JournalRecord)),
    ("events.md", "## Fields", names(run.Event)),
    ("events.md", "## Events of a run", list(run.REQUIRED)),
]
"""Page, heading of the section, and the names that must stand there in backquotes."""

VERSIONS = [
    ("manifest.json", manifest.KIND, "2 (documents), 3 (vectors), 4 (appended vectors)", "1 to 4"),
    ("ingest.json", ingest_record.KIND, ingest_record.VERSION, f"{ingest_record.OLDEST} to {ingest_record.VERSION}"),
    ("lineage.json", lineage.KIND, lineage.VERSION, lineage.VERSION),
    ("run.json", run.KIND, run.VERSION, run.VERSION),
    ("checkpoint.json, latest.json", checkpoint.KIND, checkpoint.VERSION, checkpoint.VERSION),
    ("digests.json", arrays.KIND, arrays.VERSION, arrays.VERSION),
    ("model.json", model.KIND, model.VERSION, model.VERSION),
    ("summary.json", summary.KIND, f"{summary.UNSEGMENTED} to {summary.MEANS}", "2 to 5"),
    ("names.json", topic_names.KIND, topic_names.VERSION, topic_names.VERSION),
    ("compare.json", comparison.KIND, comparison.VERSION, comparison.VERSION),
    ("cells/*.json", comparison.CELL_KIND, comparison.VERSION, comparison.VERSION),
    ("state.json of a batch job", journal.KIND, journal.VERSION, journal.VERSION),
    ("version.json", published.KIND, published.VERSION, published.VERSION),
    ("current.json", published.CURRENT_KIND, published.VERSION, published.VERSION),
    ("lock/*.json", run_lock.KIND, run_lock.VERSION, run_lock.VERSION),
]
"""File, format, and the versions that this release writes and reads."""
