# ruff: noqa: D102
# mypy: ignore-errors
"""Families that are still modules, seen as shard models: their states are bags of named arrays."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapsium.workers.families.base import Resumable, ShardModel, Stochastic


class Bag(dict[str, Any]):
    """A state of any kind, as a dict of its arrays."""

    def to_arrays(self) -> Any:
        return self

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Any:
        return arrays if isinstance(arrays, Bag) else cls(arrays)

    @property
    def nbytes(self) -> int:
        return sum(int(values.nbytes) for values in self.values())

    def __sizeof__(self) -> int:
        return self.nbytes

    def of_words(self, chosen: Any, *, complete: bool) -> Any:
        names = [name for name in self if complete or not name.startswith("block_")]
        return Bag({name: self[name][chosen] for name in names})

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Any:
        return cls(
            {
                name: np.concatenate([part[name] for part in parts], dtype=parts[0][name].dtype, casting="unsafe")
                for name in parts[0]
            }
        )

    def counted(self) -> Any:
        rows = {name: values for name, values in self.items() if name.replace("word_", "block_", 1) not in self}
        return Bag({**rows, **{name: values for name, values in self.items() if name.startswith("block_")}})


class DocumentsBag(Bag):
    """The part of a local state that a finished model keeps."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Any:
        return cls({name: values for name, values in arrays.items() if name.startswith("document")})

    @classmethod
    def array_names(cls) -> Any:
        return Prefixed()


class Prefixed:
    """The names that begin with document."""

    def __contains__(self, name: str) -> bool:
        return name.startswith("document")


class ModuleShardModel(ShardModel[Any, Any, Any, Any]):
    """A family's module."""

    module: Any
    globals_type = rows_type = local_type = Bag  # type: ignore[assignment]
    documents_type = DocumentsBag  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return _rebuilt, (self.module.__name__, self.options)

    def load_local(self, arrays: Any) -> Any:
        return arrays if hasattr(arrays, "lying") else Bag(arrays)

    def documents(self, local: Any) -> Any:
        return DocumentsBag.from_arrays(local)

    def kernels(self, globals: Any) -> Any:
        return self.module.kernels(globals)

    def fold_in_kernels(self, globals: Any) -> Any:
        return getattr(self.module, "UNSEEN_KERNELS", None) or self.module.kernels(globals)

    def initial_rows(self, words: int, globals: Any) -> Any:
        return Bag(self.module.blank(words, globals))

    def start(self, shard: Any, rows: Any, globals: Any, stream: Any, warm: Any = None) -> Any:
        return _local(self.module.start(shard, rows, globals, stream, warm))

    def sweep(self, shard: Any, local: Any, rows: Any, globals: Any, stream: Any) -> Any:
        return _local(self.module.sweep(shard, local, rows, globals, stream))

    def advance(self, rows: Any, delta: Any, globals: Any) -> Any:
        rows, globals = self.module.advance(rows, delta, globals)
        return Bag(rows), Bag(globals)

    def fold(self, block: Any, delta: Any, globals: Any) -> Any:
        rows, told = self.module.fold(block, delta, globals)
        return Bag(rows), told

    def finished_rows(self, block: Any, globals: Any) -> Any:
        return Bag(self.module.finish(block, globals))

    def fold_in(self, shard: Any, rows: Any, globals: Any, stream: Any) -> Any:
        return Bag(self.module.settle(shard, rows, globals, stream))

    def predict(self, heldout: Any, local: Any, rows: Any, globals: Any) -> Any:
        return self.module.predict(heldout, local, rows, globals)

    def probabilities(self, rows: Any, globals: Any) -> Any:
        return self.module.probabilities(rows, globals)

    def infer(self, local: Any, globals: Any) -> Any:
        return self.module.infer(local, globals)

    def word_tokens(self, rows: Any) -> Any:
        if "word_topic" not in rows:
            return None
        expected = np.asarray(rows["word_topic"], dtype=np.float64).sum(axis=1)
        return expected + rows.get("word_rest", 0.0)

    def document_lengths(self, local: Any) -> Any:
        return self.module.lengths(local)["document_tokens"]


class ModuleStochastic(ModuleShardModel, Stochastic[Any, Any, Any, Any]):
    """A family's module with the stochastic schedule."""

    def step(self, shard: Any, rows: Any, globals: Any, stream: Any) -> Any:
        return self.module.step(shard, rows, globals, stream)

    def blend(self, block: Any, delta: Any, globals: Any) -> Any:
        rows, told = self.module.blend(block, delta, globals)
        return Bag(rows), told

    def rows_for_steps(self, rows: Any, factor: float) -> Any:
        return Bag(word_topic=(rows["word_topic"] * factor).astype(np.float32))


class ModuleResumable(ModuleShardModel, Resumable[Any, Any, Any, Any]):
    """A family's module that goes on from saved local states."""

    def continue_from(self, shard: Any, saved: Any, rows: Any, globals: Any) -> Any:
        return _local(self.module.take(shard, saved, rows, globals))


class ModuleBoth(ModuleStochastic, ModuleResumable):
    """A family's module that has both."""


def _local(found: Any) -> Any:
    local, delta = found
    return (local if hasattr(local, "lying") else Bag(local)), delta


def shard_model_of(address: str) -> Any:
    """Return the class of a module's shard model."""
    module = importlib.import_module(address)
    bases = {(0, 0): ModuleShardModel, (1, 0): ModuleStochastic, (0, 1): ModuleResumable, (1, 1): ModuleBoth}
    base = bases[hasattr(module, "step"), hasattr(module, "take")]
    flags = {
        "module": module,
        "arrays": module.ARRAYS,
        "uses_labels": getattr(module, "LABELLED", False),
        "uses_segments": getattr(module, "SEGMENTED", False),
        "folds_in_at_a_point": getattr(module, "POINT", False),
    }
    return type("ModuleShardModelOf", (base,), flags)


def _rebuilt(address: str, options: Any) -> Any:
    return shard_model_of(address)(options)
