"""The members of a run: restarts, each a run with a different seed, and posterior samples, each a model."""

from __future__ import annotations

import hashlib
import os

from collapsium.storage.errors import AbsentError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import MEMBERS, MODEL, RECORD, Run

CONSENSUS = "consensus"  # Way to combine members: into one model of the run
MEAN = "mean"  # Folder, among the members, of the record of their mean


def member_seed(seed: int, number: int) -> int:
    """Return the seed of a member; a single fit with this seed gives the same bits."""
    if not number:
        return seed
    digest = hashlib.blake2b(repr((seed, "restart", number)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def restarts_in(run: Run) -> list[tuple[int, Run]]:
    """Return the restarts of an ensemble, including those that have not begun."""
    record = run.record()
    numbers = [record["best_member"]] if "best_member" in record else range(int(record.get("restarts", 0)))
    return [(int(number), run.in_member(int(number))) for number in numbers]


def restarts_of(url: str | os.PathLike[str]) -> list[tuple[int, Run]]:
    """Return the restarts of an ensemble that has begun; empty for any other folder."""
    folder = Folder(url)
    if not folder.exists(RECORD) or not folder.exists(MEMBERS):
        return []
    return restarts_in(Run(url))


def samples_in(run: Run) -> list[Folder]:
    """Return the models of a run's posterior samples, including those that are not saved yet."""
    record = run.record()
    return [run.member(number) for number in range(0 if record.get("restarts") else record["limits"].get("samples", 0))]


def samples_of(url: str | os.PathLike[str]) -> list[Folder]:
    """Return the models of a run's posterior samples, in order; empty if it has none or has not ended.

    The model is saved after the samples, so a sample that is missing then was removed: without it, only the last sample
    would be read, which nothing would say.
    """
    run = Run(url)
    if not run.exists() or not run.model.exists(MODEL_RECORD):
        return []
    places = samples_in(run)
    for place in places:
        if not place.exists(MODEL_RECORD):
            raise AbsentError(
                f"{place.url}/{MODEL_RECORD}: the sample is missing, so the samples of {run.folder.url} cannot be "
                f"averaged; restore it, or name a single model, such as {run.model.url}"
            )
    return places


def has_consensus(url: str | os.PathLike[str]) -> bool:
    """Return true if the model of a run joins, or will join, the models of its members."""
    folder = Folder(url)
    return folder.exists(RECORD) and Run(url).record().get("combine") == CONSENSUS


def members_of(url: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return the models that the consensus of an ensemble joins: its restarts, or the samples of each."""
    restarts = restarts_of(url)
    missing = [number for number, run in restarts if not run.model.exists(MODEL_RECORD)]
    if missing:
        raise AbsentError(
            f"{Folder(url).url}: {len(restarts) - len(missing)} of {len(restarts)} members have finished; continue "
            f"with `resume`, or name one of them, such as {restarts[missing[0]][1].folder.url}"
        )
    models = []
    for number, run in restarts:
        inner = leaves(run.folder.url)
        models += [(f"{number:03d}/{name}" if name else f"{number:03d}", place) for name, place in inner]
    return models


def leaves(url: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return all models of a run: its consensus, or else its restarts, and the samples of each."""
    if has_consensus(url):
        if not Run(url).model.exists(MODEL_RECORD):
            # Raises an error if a member has not ended.
            members_of(url)
            raise AbsentError(f"{Folder(url).url}: its members are not joined yet; continue with `resume`")
        return [("", Folder(url).url)]
    if restarts_of(url):
        return members_of(url)
    named = [(place.url.rpartition("/")[2], place.address) for place in samples_of(url)]
    return named or [("", Folder(url).url)]


def mean_folder(run: Run) -> Folder:
    """Return the folder of the mean of a run's members, whether or not it exists."""
    return run.folder / MEMBERS / MEAN


def mean_of(url: str | os.PathLike[str]) -> str | None:
    """Return the folder of the mean of a run's members; None for a consensus, and where members were not matched."""
    folder = Folder(url)
    if not folder.exists(RECORD) or not folder.exists(f"{MEMBERS}/{MEAN}/{MODEL_RECORD}") or has_consensus(url):
        return None
    # Without all of its samples, a run has only its final model.
    return mean_folder(Run(url)).address if restarts_of(url) or samples_of(url) else None


def averaged_models(url: str | os.PathLike[str]) -> list[str]:
    """Return the folders of the models whose mean a run has, below its folder `members/`."""
    named = [name for name, _ in leaves(url) if name]
    if not restarts_of(url):
        return named
    parts = [name.partition("/") for name in named]
    return [f"{first}/{MEMBERS}/{sample}" if sample else f"{first}/{MODEL}" for first, _, sample in parts]


def reference_of(url: str | os.PathLike[str]) -> str | None:
    """Return the folder of the first member, for uses of a single model; None for a consensus, and other folders."""
    restarts = [] if has_consensus(url) else restarts_of(url)
    return restarts[0][1].folder.url if restarts else None


def single_model_of(url: str | os.PathLike[str]) -> str:
    """Return the folder of a run's model that other fits can continue from; for an ensemble, its first member's."""
    reference = reference_of(url)
    if reference is not None:
        return single_model_of(reference)
    return os.fspath(url) if mean_of(url) is None else Run(url).model.address


def member_of(url: str | os.PathLike[str], number: int) -> str:
    """Return the folder of a restart or a sample of a run."""
    restarts = {member: run.folder.url for member, run in restarts_of(url)}
    folders = restarts or {member: place.url for member, place in enumerate(samples_of(url))}
    if number not in folders:
        known = ", ".join(str(member) for member in folders) or "no members"
        raise OptionError(f"`member` {number}: {Folder(url).url} has {known}")
    return folders[number]
