"""Retry operations on stores with exponential back-off."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from collapsium.storage.errors import CollapsiumError, StoreError

TRIES = 6
PAUSE = 0.1  # Seconds before the second attempt; each further pause is twice as long

FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors that a retry would meet again.
LASTING = {
    *FULL,
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EFBIG, errno.ELOOP, errno.EINVAL),
    *(errno.EXDEV, errno.ENOTEMPTY, errno.EMFILE, errno.ENFILE, errno.ENOTSUP),
}
_PRESENCE_ERRORS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)

T = TypeVar("T")
pause: Callable[[float], None] = time.sleep


def with_retries(url: str, operation: Callable[[], T]) -> T:
    """Return the result of an operation on a store, retried after errors that may pass."""
    for number in range(1, TRIES + 1):
        try:
            return operation()
        except (*_PRESENCE_ERRORS, CollapsiumError):
            raise
        # Clients of stores raise exceptions of their own, which have no common base class.
        except Exception as error:
            # Other built-in errors are defects of this program.
            if not isinstance(error, OSError) and type(error).__module__ in ("builtins", "numpy"):
                raise
            reason = _reason(error)
            if getattr(error, "errno", None) in LASTING or isinstance(error, PermissionError):
                raise StoreError(f"{url}: {reason}") from error
            if number == TRIES:
                raise StoreError(f"{url}: the store failed {TRIES} times, last with: {reason}") from error
            pause(PAUSE * 2 ** (number - 1))
    raise AssertionError("unreachable")


def _reason(error: Exception) -> str:
    if getattr(error, "errno", None) in FULL:
        return "no space is left on the disk"
    text = getattr(error, "strerror", None) or str(error)
    return text.splitlines()[0] if text else type(error).__name__
