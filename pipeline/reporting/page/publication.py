"""Sections of a report on a published version: its name, its scores, and the unknown words of what was appended."""

from __future__ import annotations

import os

from collapsium.pipeline.corpora.unknown_words import MAX_SHARE
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.published import RECORD, VersionRecord, read_version


def version_of(folder: str | os.PathLike[str]) -> VersionRecord | None:
    """Return the record of the published version that a folder is; None for any other run or model."""
    place = Folder(folder)
    return read_version(place) if place.exists(RECORD) else None


def facts_of(version: VersionRecord | None) -> list[tuple[str, str]]:
    """Return names and values that tell how a version was published; none without a version."""
    if version is None:
        return []
    rows = [("job", version.job), ("version", str(version.number)), ("published", version.created)]
    if version.score is not None:
        rows.append(("held out", version.score_text))
        rows.append(("definition of the score", version.definition))
    if version.previous is not None:
        rows.append((f"score of version {version.previous['version']}", f"{version.previous['score']:.5g}"))
    if version.members:
        rows.append(("models", f"{len(version.members)}, whose mean prediction is scored"))
    if version.unknown_share is not None:
        share = f"{version.unknown_share:.1%} ({version.unknown_tokens:,}) of the tokens of appended documents"
        rows.append(("not in the vocabulary", share))
    return rows


def notes_of(version: VersionRecord | None) -> list[str]:
    """Return what a reader of a version's report must know."""
    if version is None or version.unknown_share is None or version.unknown_share <= MAX_SHARE:
        return []
    share = f"{version.unknown_share:.1%} of the tokens of the documents that were appended"
    what = "are of words that are not in the vocabulary, and were dropped: the topics do not show what is new in them"
    return [f"{share} {what}. With `grow = true` in [ingest] new words that its rules keep are added."]
