"""Short representations of records with many words, pairs or rows."""

from __future__ import annotations

import dataclasses
import reprlib
from typing import Any, cast


class _Short(reprlib.Repr):
    """Representations with a few items each, and of arrays the dtype and shape."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = 4
        self.maxdict, self.maxlevel = 6, 3
        self.maxstring, self.maxother = 60, 200

    def repr1(self, x: Any, level: int) -> str:  # an array of any library
        """Return the representation of a value."""
        library = type(x).__module__.partition(".")[0]
        if library == "numpy" and hasattr(x, "dtype") and x.shape:
            return f"<{x.dtype}, {' x '.join(map(str, x.shape))}>"
        if library == "pyarrow" and hasattr(x, "num_rows"):
            return f"<table, {x.num_rows} x {x.num_columns}>"
        if library == "pyarrow" and hasattr(x, "__len__"):
            return f"<{x.type}, {len(x)}>"
        return super().repr1(x, level)


def short(value: object) -> str:
    """Return the representation of a value, shortened to a few items."""
    return _Short().repr(value)


class ShortRepr:
    """A base of dataclasses, made with ``repr=False``, whose representation is a few lines at most."""

    def __repr__(self) -> str:
        named = ((one.name, getattr(self, one.name)) for one in dataclasses.fields(cast(Any, self)) if one.repr)
        return f"{type(self).__name__}({', '.join(f'{name}={short(value)}' for name, value in named)})"
