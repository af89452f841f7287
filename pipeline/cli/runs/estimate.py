"""Estimate the memory, disk space, network traffic and time of a fit before it runs.

The command prints the peak memory of each worker process, the disk space, and the
bytes exchanged in each iteration. With --link and --measured it also prints how long
an iteration takes, and whether more --local-sweeps would pay off. Local states that
exceed the memory are spilled to disk. `collapsium fit` refuses a fit that cannot run,
and prints this table. All options of `collapsium fit` are accepted, though some affect
no resource.
"""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import JsonOptions, argument, in_flags, print_json
from collapsium.pipeline.cli.family_options import ConfigOptions, FamilyFlags, gather
from collapsium.pipeline.engine.setup.limits import FitOptions
from collapsium.pipeline.executors.schedulers import ExecutorOptions, LinkOptions

EPILOG = """examples:
  collapsium estimate train --family hdp --topics 500
  collapsium estimate train --family lda --topics 1000 --scheduler local --workers 8 --memory 16GB
  collapsium estimate train --family lda --topics 1000 --scheduler tcp://host:8786 --workers 8 \\
      --link 1Gbit --measured trial"""


def execute(
    corpus: Annotated[str, argument("CORPUS", "folder of the corpus")],
    /,
    *,
    chosen: FamilyFlags,
    config: ConfigOptions,
    options: FitOptions,
    execution: ExecutorOptions,
    exchange: LinkOptions,
    output: JsonOptions,
    **flags: str,
) -> None:
    """Print the plan."""
    request = gather(chosen, config.config, flags, (options, execution, exchange))
    with request.named():
        plan = pipeline.estimate(corpus, family=request.family, **request.options)
    problem = in_flags(plan.problem())
    if output.as_json:
        print_json({**plan.record(), "problem": problem})
        return
    print(in_flags(plan.table()))
    print(f"\n{f'does not fit: {problem}' if problem else 'fits'}")
