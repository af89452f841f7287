"""Short representations of records that hold many words, pairs or rows."""

from __future__ import annotations

import dataclasses
import reprlib
from typing import Any, cast


class _Short(reprlib.Repr):
    """Representations of a few items each, of arrays their kind and size."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = 4
        self.maxdict, self.maxlevel = 6, 3
        self.maxstring, self.maxother = 60, 200

    def repr1(self, x: Any, level: int) -> str:
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
    """Return the representation of a value, of what is long in it a few items."""
    return _Short().repr(value)


class ShortRepr:
    """A base of dataclasses, made with ``repr=False``, whose representation is a few lines at most."""

    def __repr__(self) -> str:
        named = ((one.name, getattr(self, one.name)) for one in dataclasses.fields(cast(Any, self)) if one.repr)
        return f"{type(self).__name__}({', '.join(f'{name}={short(value)}' for name, value in named)})"
