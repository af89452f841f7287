"""Write a model as other programs read it: pyLDAvis, gensim, or tables of comma-separated values.

    collapsium export RUN vis.json --to pyldavis
    python -c "import json, pyLDAvis; pyLDAvis.save_html(pyLDAvis.prepare(**json.load(open('vis.json'))), 'vis.html')"

    collapsium export RUN folder --to gensim       (extra: gensim)
    python -c "import gensim; print(gensim.models.LdaModel.load('folder/model').show_topics())"

    collapsium export RUN folder --to csv

csv makes topics.csv (topic, share, words; of trees parent, level and below), words.csv (topic, word,
probability) and documents.csv (document, topic, proportion), which needs the training corpus.
gensim's files are its own, pickles among them: load none that you have not made. Its topics are numbered
in the order of `collapsium topics`, and its alpha are their shares.
"""

from __future__ import annotations

from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument, in_flags
from collapsium.pipeline.executors.options import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.reporting.options import ExportOptions, TableOptions

OPTIONS = (ExportOptions, TableOptions, SchedulerOptions)


def execute(
    run: Annotated[str, argument("RUN", "a run or a model; of an ensemble, its first member is written")],
    out: Annotated[str, argument("OUT", "folder to make or, for pyldavis, JSON file to write")],
    /,
    flags: Flags,
) -> None:
    """Export, and say what was written."""
    from collapsium.pipeline.reporting.export import export

    with counting("exporting", "read") as progress:
        found = export(run, out, **flags.given(*OPTIONS), tls=flags.of(CertificateOptions).tls, progress=progress)
    documents = f", {found.documents:,} documents" if found.documents else ""
    print(f"{out}: {found.topics:,} topics{documents}")
    for note in found.notes:
        print(plain(in_flags(note)))


COMMAND = Command(execute, (*OPTIONS, CertificateOptions))
