"""Open URLs from records safely, as anyone may have written a record."""

from __future__ import annotations

from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder

# Protocols of stores whose address is the user's own configuration: a bucket follows, no host to connect to
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"})


def recorded_url(folder: Folder, url: object) -> str:
    """Return a URL from a record, unless it leads to another store than the record's own.

    Opening a URL connects to its host, or runs the code of a chained protocol. So a record may refer to local paths
    and to its own store only.
    """
    if isinstance(url, str) and not ("::" in url and "://" in url):
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
