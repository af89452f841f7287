# ruff: noqa: D102
# mypy: ignore-errors
"""Families that are still modules, seen as classes."""

from __future__ import annotations

import importlib
from typing import Any

from collapsium.pipeline.families.base import Resumable, Simulates, Stochastic, WeighsLabels
from collapsium.pipeline.families.cvb import common as collapsed
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers.families.module_adapter import Bag, shard_model_of


class ModuleFamily(Simulates[Any, Any, Any]):
    """A family's module."""

    module: Any

    def initialise(self, summary: Any, options: Any, stream: Any) -> Any:
        return Bag(self.module.initialise(summary, options, stream))

    def footprint(self, summary: Any, options: Any) -> Any:
        return self.module.footprint(summary, options)

    def update(self, globals: Any, delta: Any, options: Any, stream: Any) -> Any:
        return Bag(self.module.update(globals, delta, options, stream))

    def objective(self, globals: Any, delta: Any) -> Any:
        return self.module.objective(globals, delta)

    def figures(self, globals: Any) -> Any:
        return self.module.figures(globals)

    def describe(self, block: Any, globals: Any, count: int) -> Any:
        return self.module.describe(block, globals, count)

    def draw_model(self, summary: Any, options: Any, stream: Any) -> Any:
        rows, globals = self.module.truth(summary, options, stream)
        return rows, Bag(globals)

    def simulate(self, topics: Any, globals: Any, documents: int, tokens: float, stream: Any) -> Any:
        return self.module.simulate(topics, globals, documents, tokens, stream)

    def needs_another_round(self, globals: Any) -> bool:
        return float(globals.get("another_round", 0)) > 0

    def uncounted_tokens(self, globals: Any) -> float:
        return float(globals.get("unsettled", 0))

    def cannot_change(self, globals: Any) -> bool:
        return float(globals.get("fixed", 0)) > 0

    def word_concentration(self, globals: Any) -> float | None:
        return float(globals["beta"]) if "beta" in globals else None

    def label_table(self, globals: Any) -> LabelTable | None:
        return LabelTable.unpacked(globals["label_table"]) if "label_table" in globals else None


class ModuleResumable(ModuleFamily, Resumable[Any, Any, Any]):
    """A family's module that goes on from another run."""

    def carry(self, globals: Any, known: Any, options: Any, before: Any) -> Any:
        found = self.module.carry(globals, known, options, before)
        return None if found is None else (Bag(found[0]), found[1])


class ModuleStochastic(ModuleFamily, Stochastic[Any, Any, Any]):
    """A family's module with the stochastic schedule."""

    def corpus_tokens(self, globals: Any) -> float:
        return float(globals["corpus_tokens"])

    def globals_for_steps(self, globals: Any, summary: Any, options: Any, minibatches: int) -> Any:
        return Bag(collapsed.stepping(globals, summary, options, minibatches))

    def is_stochastic(self, globals: Any) -> bool:
        return bool(globals.get("stochastic", False))


class ModuleWeighsLabels(ModuleFamily, WeighsLabels[Any, Any, Any]):
    """A family's module whose labels have factors."""

    def label_weights(self, globals: Any) -> Any:
        return self.module.label_weights(globals)


def family_of(address: str) -> Any:
    """Return a module's family."""
    module = importlib.import_module(address)
    bases: list[Any] = [ModuleResumable] if hasattr(module, "carry") else []
    bases += [ModuleStochastic] if "stochastic" in module.SCHEDULES else []
    bases += [ModuleWeighsLabels] if hasattr(module, "label_weights") else []
    flags = {
        "module": module,
        "shard_model": shard_model_of(address.replace(".pipeline.", ".workers.")),
        "Options": module.Config,
        "Config": module.Config,
        "corpus_kind": module.CORPUS,
        "schedules": module.SCHEDULES,
        "is_sampler": module.SAMPLER,
        "requires_labels": getattr(module, "NEEDS_LABELS", False),
        "uses_linear_algebra": getattr(module, "LINEAR_ALGEBRA", False),
    }
    return type("ModuleFamilyOf", tuple(bases) or (ModuleFamily,), flags)()
