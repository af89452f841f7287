"""Types that modules on disk formats share: arrays of any dtype, and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

AnyArray: TypeAlias = "npt.NDArray[Any]"  # An array whose dtype is checked where it is read, or does not matter
Arrays: TypeAlias = Mapping[str, AnyArray]  # Arrays by name, such as a model's global state

# A value as `json.loads` returns it
Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None

# A record or an event as JSON; its fields are declared by a pydantic model and checked as it is read
JsonObject: TypeAlias = dict[str, Any]

DType: TypeAlias = "np.dtype[Any]"  # The dtype of an `AnyArray`
