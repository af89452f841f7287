"""Facts and warnings of a report on a published version: its job, its scores, and unknown words of appended texts."""

from __future__ import annotations

import os

from collapsium.pipeline.corpora.new_texts import MAX_SHARE
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.published import RECORD, VersionRecord, read_version


def version_of(folder: str | os.PathLike[str]) -> VersionRecord | None:
    """Return the record of the published version that a folder is; None for any other run or model."""
    place = Folder(folder)
    return read_version(place) if place.exists(RECORD) else None


def facts_of(version: VersionRecord | None) -> list[tuple[str, str]]:
    """Return names and values of a version's publication; an empty list without a version."""
    if version is None:
        return []
    rows = [("job", version.job), ("version", str(version.number)), ("published", version.created)]
    if version.score is not None:
        rows.append(("held-out score", version.score_text))
        rows.append(("definition of the score", version.definition))
    if version.previous is not None:
        rows.append((f"score of version {version.previous['version']}", f"{version.previous['score']:.5g}"))
    if version.members:
        rows.append(("members", f"{len(version.members)}; the score is that of their mean prediction"))
    for name, ids in (("new topics", version.born), ("topics that are gone", version.gone)):
        if ids:
            rows.append((name, ", ".join(map(str, ids))))
    if version.unknown_share is not None:
        share = f"{version.unknown_share:.1%} ({version.unknown_tokens:,}) of the tokens of appended documents"
        rows.append(("words not in the vocabulary", share))
    return rows


def notes_of(version: VersionRecord | None) -> list[str]:
    """Return a warning if many tokens of the appended documents were dropped as unknown words."""
    if version is None or version.unknown_share is None or version.unknown_share <= MAX_SHARE:
        return []
    note = (
        f"{version.unknown_share:.1%} of the tokens of the appended documents are words outside the vocabulary and "
        "were dropped, so the topics do not show what is new in them. With `grow = true` in [ingest] the vocabulary "
        "takes in new words that pass its pruning rules."
    )
    return [note]
