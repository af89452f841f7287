"""The members of a run: restarts, each a run with a seed of its own, and kept samples, each a model."""

from __future__ import annotations

import hashlib
import os

from collapsium.storage.errors import AbsentError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import MEMBERS, RECORD, Run


def member_seed(seed: int, number: int) -> int:
    """Return the seed of a member: a fit by itself with this seed is the same to the last bit.

    Parameters
    ----------
    seed : int
        Of the ensemble.
    number : int
        Of the member.

    Returns
    -------
    int
        The ensemble's for member 0; else of 63 bits, from a hash of both.
    """
    if not number:
        return seed
    digest = hashlib.blake2b(repr((seed, "restart", number)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def restarts_in(run: Run) -> list[tuple[int, Run]]:
    """List the restarts that an ensemble shall have, whether they are there or not.

    Parameters
    ----------
    run : Run
        Any run.

    Returns
    -------
    list of (int, Run)
        Their numbers and runs; where only the best was kept, that one. None where the run is no ensemble.
    """
    record = run.record()
    numbers = [record["best_member"]] if "best_member" in record else range(int(record.get("restarts", 0)))
    return [(int(number), run.in_member(int(number))) for number in numbers]


def restarts_of(url: str | os.PathLike[str]) -> list[tuple[int, Run]]:
    """List the restarts of an ensemble of which some are there; none for any other folder, whatever it is."""
    folder = Folder(url)
    if not folder.exists(RECORD) or not folder.exists(MEMBERS):
        return []
    return restarts_in(Run(url))


def samples_of(url: str | os.PathLike[str]) -> list[Folder]:
    """List the models of a run's kept samples, in their order; none where it has none, or is not at its end."""
    folder = Folder(url)
    if not folder.exists(RECORD) or not folder.exists(MEMBERS):
        return []
    run = Run(url)
    record = run.record()
    places = [run.member(number) for number in range(int(record["limits"].get("samples", 0)))]
    whole = run.model.exists(MODEL_RECORD) and all(place.exists(MODEL_RECORD) for place in places)
    return places if whole and not record.get("restarts") else []


def leaves(url: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """List all models that a run stands for: its restarts, and of each the samples that were kept.

    Parameters
    ----------
    url : str or path-like
        Folder of a run or a model.

    Returns
    -------
    list of (str, str)
        Their names, such as ``003`` or ``003/001``, and their folders; one without a name for a model by itself.

    Raises
    ------
    AbsentError
        A restart has not come to its end.
    """
    restarts = restarts_of(url)
    if not restarts:
        samples = samples_of(url)
        named = [(place.url.rpartition("/")[2], place.address) for place in samples]
        return named or [("", Folder(url).url)]
    missing = [number for number, run in restarts if not run.model.exists(MODEL_RECORD)]
    if missing:
        raise AbsentError(
            f"{Folder(url).url}: {len(restarts) - len(missing)} of {len(restarts)} members are at their end; go on "
            f"with `resume`, or name one of them, such as {restarts[missing[0]][1].folder.url}"
        )
    found = []
    for number, run in restarts:
        inner = leaves(run.folder.url)
        found += [(f"{number:03d}/{name}" if name else f"{number:03d}", place) for name, place in inner]
    return found


def reference_of(url: str | os.PathLike[str]) -> str | None:
    """Name the member that stands for an ensemble where only one can: the first there is; None for other folders."""
    restarts = restarts_of(url)
    return restarts[0][1].folder.url if restarts else None


def member_of(url: str | os.PathLike[str], number: int) -> str:
    """Name a restart or a kept sample of a run.

    Parameters
    ----------
    url : str or path-like
        Folder of the run.
    number : int
        Of the member.

    Returns
    -------
    str
        Its folder.

    Raises
    ------
    OptionError
        There is no such member.
    """
    restarts = {own: run.folder.url for own, run in restarts_of(url)}
    found = restarts or {own: place.url for own, place in enumerate(samples_of(url))}
    if number not in found:
        known = ", ".join(str(own) for own in found) or "no members"
        raise OptionError(f"`member` {number}: {Folder(url).url} has {known}")
    return found[number]
