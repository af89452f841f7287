"""URLs in records, which anyone may have written."""

from __future__ import annotations

from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"})
"""Protocols of stores whose address is the user's own configuration: a bucket follows, no host to connect to."""


def recorded_url(folder: Folder, url: object) -> str:
    """Return a URL that a record in a folder names, unless it leads to another store.

    Anyone may have written a record, and to open a URL is to connect to its host, or to run what a chained protocol
    makes of it. So a record may name local paths, and places in the store that it came from itself.

    Parameters
    ----------
    folder : Folder
        The folder of the record.
    url : object
        The record's URL, or whatever stands in its place.

    Returns
    -------
    str
        The URL.

    Raises
    ------
    AbsentError
        It names another store, or is no URL.
    """
    if isinstance(url, str) and "::" not in url:
        scheme, host, own_scheme, own_host = *_store_of(url), *_store_of(folder.address)
        if scheme == "" or (scheme == own_scheme and (host == own_host or scheme in OBJECT_STORES)):
            return url
    raise AbsentError(
        f"{folder.url}: its record names {str(url)[:200]!r}, which is opened only where you name it yourself, as "
        "anyone may have written the record"
    )


def _store_of(url: str) -> tuple[str, str]:
    """Return the protocol and the host or bucket of a URL; both are empty for a local path."""
    protocol, separator, rest = url.partition("://")
    if not separator or protocol in ("file", "local"):
        return "", ""
    return protocol, rest.partition("/")[0]
