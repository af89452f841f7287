"""Predict what a fit takes, before anything runs.

Memory of each worker process at its peak, disk, and the bytes that move between
processes in an iteration. Where local states do not fit into memory, they lie
on disk; `collapsium fit` refuses, with this table, what cannot fit at all.
"""

from __future__ import annotations

from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument, in_flags
from collapsium.pipeline.cli.family_options import ConfigOptions, FamilyFlags, NamedFamily, gather
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.engine.setup.limits import RUN_NAMES, EstimateOptions
from collapsium.pipeline.executors.options import MemoryOptions, SchedulerOptions

EPILOG = """examples:
  collapsium estimate train --family hdp --topics 500
  collapsium estimate train --family lda --topics 1000 --scheduler local --workers 8 --memory 4GB"""
OPTIONS = (EstimateOptions, SchedulerOptions, MemoryOptions)


def execute(corpus: Annotated[str, argument("CORPUS", "folder of the corpus")], /, flags: Flags) -> None:
    """Print the plan."""
    from collapsium.pipeline.engine.resources.estimate import estimate

    asked = gather(flags, OPTIONS)
    # A fit's file may name others; they do not change what it takes.
    others = {*RUN_NAMES} - {name for model in OPTIONS for name in model.model_fields}
    options = {name: value for name, value in asked.options.items() if name not in others}
    with asked.named():
        plan = estimate(corpus, family=asked.family, **options)
    problem = in_flags(plan.problem())
    if flags.json:
        print_json({**plan.record(), "problem": problem})
        return
    print(plan.table())
    print(f"\n{f'does not fit: {problem}' if problem else 'fits'}")


COMMAND = Command(
    execute,
    (FamilyFlags, ConfigOptions, *OPTIONS, JsonOptions),
    epilog=EPILOG,
    family=NamedFamily(),
)
