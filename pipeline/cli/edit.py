"""The command `collapsium edit`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import JsonOptions, argument, in_flags, named_options, print_json
from collapsium.pipeline.engine.edit_options import EditOptions
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.options import OverwriteOptions

EDIT_EPILOG = """examples:
  collapsium edit RUN OUT --merge 3,7 --rename 5="space flight"
  collapsium fit CORPUS REFITTED --family lda --topics 50 --warm OUT"""


def edit(
    run: Annotated[str, argument("RUN", "a run that has ended, or a model; for restarts, one member or the consensus")],
    out: Annotated[str, argument("OUT", "folder of the new model")],
    /,
    *,
    options: EditOptions,
    replacing: OverwriteOptions,
    output: JsonOptions,
) -> None:
    """Merge and rename topics of a model, and write a new model.

    The run itself does not change. OUT is a model that every command reads, and from
    which a fit can begin: fit CORPUS RUN --warm OUT. Topics keep their ids.

    Counts stay exact. A merged topic has the sum of its parts' counts, for each document
    and each word, and the name of the first part that has one.

    Topics of lda and hdp can be edited, unless the fit used --prevalence, --seeds,
    order 2 or the stochastic schedule, or learned beta. The model's counts are held
    in memory.
    """
    edited = pipeline.edit(run, out, **named_options(options, replacing))
    if output.as_json:
        print_json(asdict(edited))
        return
    print(f"{out}: {counted(edited.topics, 'topic')}")
    for topic, into in sorted(edited.merged.items()):
        print(f"  topic {topic} is part of topic {into}")
    for topic in sorted(options.rename):
        print(plain(f"  topic {topic} is named {edited.names[topic]}"))
    for note in edited.notes:
        print(plain(in_flags(note)))
