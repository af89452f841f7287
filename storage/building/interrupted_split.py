"""Complete splits that were interrupted between the renames of their two parts."""

from __future__ import annotations

from pathlib import Path

from collapsium.storage.corpus.lineage import read_steps
from collapsium.storage.corpus.manifest import read_manifest
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.unfinished import abandoned


def finish_interrupted(train: Folder, heldout: Folder) -> bool:
    """Rename the second part of a split if a process died after it had renamed the first."""
    if not (train.local and heldout.local) or train.exists() == heldout.exists():
        return False
    there, missing = (train, heldout) if train.exists() else (heldout, train)
    with abandoned(Path(missing.path)) as places:
        for place in places:
            if _are_parts_of_one_split(there, Folder(str(place))):
                Folder(str(place)).rename(missing)
                return True
    return False


def _are_parts_of_one_split(there: Folder, hidden: Folder) -> bool:
    """Return True if two folders are complete and the two parts of one split."""
    try:
        manifests = read_manifest(there), read_manifest(hidden)
        first, second = read_steps(there), read_steps(hidden)
    except CollapsiumError:
        return False
    if not first or not second or manifests[0].vocabulary.words_sha256 != manifests[1].vocabulary.words_sha256:
        return False
    flipped = second[-1].model_copy(update={"heldout": not second[-1].heldout})
    return first == (*second[:-1], flipped)


def is_same_part(one: Folder, other: Folder) -> bool:
    """Return True if two folders hold the same part of the same split of the same corpus."""
    return read_manifest(one).digest == read_manifest(other).digest and read_steps(one) == read_steps(other)
