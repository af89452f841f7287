"""The numbered files of a lock, a generation each, and their records."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import checked, numbers_of_names, parse_record

LEASE = 60.0  # Seconds without a change of the file after which an owner on another machine counts as dead

KIND = "collapsium-lock"
VERSION = 3

MOST, MOST_BYTES = 10**15, 1 << 16  # Largest generation, and largest size of a lock's file in bytes


class LockRecord(BaseModel):
    """The record in the file of a lock; anyone may have written it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    # The owner: its machine, process id, and start time, on a clock that is never adjusted
    machine: Annotated[str, Field(pattern=r"^[!-~]+( [!-~]+)*$", max_length=500)]
    process: Annotated[int, Field(ge=1, lt=1 << 31)]
    started: Annotated[str, Field(pattern="^[0-9.]+$", max_length=40)]
    lease: Annotated[float, Field(gt=0.0, le=600.0)]  # Seconds without a change after which the owner counts as dead
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]  # Random text drawn by the owner
    renewals: Annotated[int, Field(ge=0, lt=1 << 53)]  # Number of renewals


def file_of(number: int) -> str:
    """Return the name of the file of a generation."""
    return f"{number:08d}.json"


def numbers_in(folder: Folder) -> list[int]:
    """Return the generations that have a file, ascending."""
    return numbers_of_names(folder.names(), 8, ".json")


def parse_lock(path: str, data: bytes) -> LockRecord | None:
    """Parse a lock's file; None if it is damaged or of another release."""
    try:
        return LockRecord.model_validate(checked(parse_record(data, path, KIND, VERSION, VERSION), path))
    except (DamagedError, ValidationError):
        return None
