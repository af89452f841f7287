"""Estimate the memory, disk space and network traffic of a fit before it runs.

Prints the peak memory of each worker process, the disk space, and the bytes
exchanged in each iteration. Local states that exceed the memory are spilled to
disk. `collapsium fit` refuses a fit that cannot run, and prints this table.
"""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import Command, Flags, argument, in_flags
from collapsium.pipeline.cli.family_options import ConfigOptions, FamilyFlags, NamedFamily, gather
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.engine.setup.limits import RUN_NAMES, EstimateOptions
from collapsium.pipeline.executors.schedulers import MemoryOptions, SchedulerOptions

EPILOG = """examples:
  collapsium estimate train --family hdp --topics 500
  collapsium estimate train --family lda --topics 1000 --scheduler local --workers 8 --memory 4GB"""
OPTIONS = (EstimateOptions, SchedulerOptions, MemoryOptions)


def execute(corpus: Annotated[str, argument("CORPUS", "folder of the corpus")], /, flags: Flags) -> None:
    """Print the plan."""
    request = gather(flags, OPTIONS)
    # A configuration file of a fit may have options that do not change the estimate.
    others = {*RUN_NAMES} - {name for model in OPTIONS for name in model.model_fields}
    options = {name: value for name, value in request.options.items() if name not in others}
    with request.named():
        plan = pipeline.estimate(corpus, family=request.family, **options)
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
