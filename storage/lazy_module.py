"""Modules that are imported when they are first used, where an import at start would delay what does not need them."""

from __future__ import annotations

from importlib import import_module


class LazyModule:
    """A module whose attributes are imported when they are first read.

    A module names it beside the import statement that type checkers and import-linter read::

        if TYPE_CHECKING:
            import zarr
        else:
            zarr = LazyModule("zarr")

    Python's import lock guards the import, so threads may share it. `importlib.util.LazyLoader`, with which
    lazy-loader loads modules, shows half a module to a second thread before Python 3.11.9 and 3.12.3 (CPython issue
    114763), and names modules in `sys.modules` that have not been imported.
    """

    __slots__ = ("_missing", "_name")

    def __init__(self, name: str, missing: Exception | None = None) -> None:
        self._name, self._missing = name, missing

    def __getattr__(self, attribute: str) -> object:
        try:
            module = import_module(self._name)
        except ModuleNotFoundError as error:
            if self._missing is None or not self._name.startswith(f"{error.name}"):
                raise
            raise self._missing from None
        return getattr(module, attribute)

    def __repr__(self) -> str:
        return f"LazyModule({self._name!r})"
