"""Operations on stores that fail now and then: tried again after pauses that grow, then given up with a clear error."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from collapsium.storage.errors import CollapsiumError, StoreError

TRIES = 6
PAUSE = 0.1  # seconds before the second try; each further pause is twice as long
FULL = (errno.ENOSPC, errno.EDQUOT)
# What the next try would meet again.
LASTING = {
    *FULL,
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EFBIG, errno.ELOOP, errno.EINVAL),
    *(errno.EXDEV, errno.ENOTEMPTY, errno.EMFILE, errno.ENFILE, errno.ENOTSUP),
}
_SAID = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)

T = TypeVar("T")
pause: Callable[[float], None] = time.sleep


def patiently(url: str, operation: Callable[[], T]) -> T:
    """Do something with a store, several times if it fails in a way that may pass.

    Parameters
    ----------
    url : str
        What it is done with, for the error.
    operation : callable
        What to do; doing it twice does no harm.

    Returns
    -------
    object
        What it returns.

    Raises
    ------
    StoreError
        It failed for good: no space is left, it is not allowed, or it failed `TRIES` times.
    OSError
        What says something of what is there: that a file is absent, or a folder.
    """
    for number in range(1, TRIES + 1):
        try:
            return operation()
        except (*_SAID, CollapsiumError):
            raise
        except Exception as error:  # stores raise their clients' own errors, of no common kind
            if not isinstance(error, OSError) and type(error).__module__ in ("builtins", "numpy"):
                raise  # a defect of ours, not of the store
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
