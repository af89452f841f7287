"""Compare model families on a corpus, by one definition of the score.

Holds out tokens of each document, fits each family with each number of topics
and several seeds, and writes into OUT: table.md and table.parquet (a row a cell),
series.parquet (a row an iteration) and plots/. This is what Figures 2 and 3 of
Teh, Kurihara and Welling, "Collapsed variational inference for HDP" (2007), show.
Families that find their number of topics are fitted from each of --start-topics.
The same command again goes on where it was stopped.

With --unseen no tokens are held out. By default those families are fitted that take
labels, once, and the perplexity of unseen documents given their labels alone is told.
With --field it is also told how well a label or number is predicted, by families as by
`collapsium predict`, and by classifiers: lda-svm (LDA, and a linear SVM on its proportions
and the other labels), naive-bayes, svm (linear, on TF-IDF) and tree, of words, from
scikit-learn, and slda, tomotopy's supervised LDA, where that is installed. They read the
documents into memory, and are tuned on a tenth of the training documents.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.cli.options import add_json, add_log_format, add_memory, add_scheduler, tls_of
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.engine.setup.limits import ITERATIONS
from collapsium.pipeline.families.registry import family_names
from collapsium.pipeline.workflows.compare.options import RESTARTS, STARTS, TOPICS, parse_settings, parse_vary
from collapsium.storage.errors import OptionError

if TYPE_CHECKING:
    from collapsium.pipeline.workflows.compare.heldout import Comparison
    from collapsium.pipeline.workflows.compare.unseen.compare import UnseenComparison

ONE = ("unseen", "labels", "without", "field", "classifiers", "covariates", "lda_topics", "slda_topics")
TWO = ("fraction", "heldout", "peers", "start_from")  # what a comparison on unseen documents does not take
CLASSIFIERS = ("lda-svm", "naive-bayes", "svm", "tree", "slda")
HELP = "compare families over numbers of topics and seeds: a table and plots"
EPILOG = """examples:
  collapsium compare kos out --families lda,hdp --topics 40,80,120 --restarts 5
  collapsium compare train out --heldout heldout --families lda,gibbs-lda --samples 20 --sample-every 10
  collapsium compare kos out --set hdp.order=2 --set gibbs-hdp.iterations=500 --set lda.alpha=0.1/K
  collapsium compare kos out --start-from gibbs-hdp --families hdp,gibbs-hdp --topics 200
  collapsium compare kos out --families lda --peers scikit-learn,gensim --set gensim.iterations=20
  collapsium compare train out --unseen test --vary eta=0.1,0.25,0.5,0.75,1.0 --vary topics_per_label=2,5
  collapsium compare train out --unseen test --families hdsp --field stars --without category --lda-topics 50,200

--set takes a family's options (`collapsium fit --family FAMILY --help`) and iterations, samples, sample_every,
score_every, local_sweeps; of a peer iterations, alpha, beta (of tomotopy also samples, sample_every). A number
over K, such as 0.1/K, is that number divided by the cell's number of topics; nothing else is computed.

A field that says the same as the one to predict, such as a rating beside stars, must not be taken: --labels names
those that are. Families take numbers by --set hdsp.scaling=linear --set hdsp.covariates=rating, and predict them."""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command's options."""
    from collapsium.pipeline.workflows.compare.baselines.libraries import ALL as PEERS

    parser.add_argument("corpus", metavar="CORPUS", help="what to fit to")
    parser.add_argument("out", metavar="OUT", help="folder to make, or to go on with")
    grid = parser.add_argument_group("the grid")
    grid.add_argument("--families", metavar="A,B", help=f"default: {','.join(family_names())}")
    grid.add_argument(
        "--topics", metavar="K,K", help=f"numbers of topics (default: {_joined(TOPICS)}; with --unseen 200)"
    )
    grid.add_argument(
        "--start-topics",
        metavar="N,N",
        default=_joined(STARTS),
        help=f"topics to start from, of families that find their number (default: {_joined(STARTS)})",
    )
    grid.add_argument(
        "--restarts", type=int, metavar="R", help=f"seeds of each cell (default: {RESTARTS}; with --unseen 1)"
    )
    grid.add_argument(
        "--start-from",
        metavar="FAMILY",
        help="fit this family first, from its most topics; fit the others from random starts and from its fits",
    )
    grid.add_argument(
        "--iterations", type=int, default=ITERATIONS, metavar="N", help=f"of each fit (default: {ITERATIONS})"
    )
    grid.add_argument(
        "--samples", type=int, default=0, metavar="S", help="of samplers: states whose predictions are averaged"
    )
    grid.add_argument("--sample-every", type=int, default=0, metavar="T", help="iterations between two of them")
    grid.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FAMILY.OPTION=VALUE",
        dest="settings",
        help="an option of one family or peer, as a TOML value or a number over K; can be repeated",
    )
    grid.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="[FAMILY.]OPTION=V,V",
        help="values of an option: a cell for each, of all families that have it or of one; can be repeated",
    )
    held = parser.add_argument_group("what is held out")
    which = held.add_mutually_exclusive_group()
    which.add_argument("--fraction", type=float, metavar="F", help="share of the tokens to split off (default: 0.1)")
    which.add_argument("--heldout", metavar="CORPUS", help="held-out tokens of the same documents; CORPUS stays whole")
    which.add_argument("--unseen", metavar="CORPUS", help="other documents, to score given their labels alone")
    held.add_argument("--seed", type=int, default=0, metavar="S", help="of the split and all fits (default: 0)")
    parser.add_argument(
        "--peers",
        metavar="A,B",
        help=f"other libraries to fit beside ({','.join(PEERS)}): OUT/peers.md has scores, times and words",
    )
    _configure_classes(parser)
    add_scheduler(parser, "threads")
    add_memory(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_log_format(parser)
    add_json(parser)
    parser.set_defaults(words=list(argv))


def _configure_classes(parser: argparse.ArgumentParser) -> None:
    """Add the options of --unseen."""
    given = parser.add_argument_group("labels and classes, with --unseen")
    given.add_argument("--labels", metavar="A,B", help="fields of labels to take (default: all)")
    given.add_argument("--without", metavar="A,B", help="fit each a second time without these fields of labels")
    given.add_argument("--field", metavar="NAME", help="a field of labels, or a number, to predict")
    given.add_argument("--classifiers", metavar="A,B", help=f"beside the families (default: {','.join(CLASSIFIERS)})")
    given.add_argument("--covariates", metavar="A,B", help="numbers that lda-svm takes besides (default: none)")
    given.add_argument("--lda-topics", metavar="K,K", help="of lda-svm (default: 200)")
    given.add_argument("--slda-topics", metavar="K,K", help="of slda (default: 50)")


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in _names(text))
    except ValueError:
        raise OptionError(f"{flag}: expected whole numbers with commas between, found {text!r}") from None


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what is asked for, without what is not said."""
    found: dict[str, Any] = {"settings": parse_settings(arguments.settings), "vary": parse_vary(arguments.vary)}
    for name in ("topics", "start_topics", "lda_topics", "slda_topics"):
        text = getattr(arguments, name)
        found[name] = None if text is None else _numbers(f"--{name.replace('_', '-')}", text)
    for name in ("families", "peers", "labels", "without", "classifiers", "covariates"):
        text = getattr(arguments, name)
        found[name] = None if text is None else _names(text)
    names = ("restarts", "iterations", "samples", "sample_every", "start_from", "heldout", "unseen", "fraction", "seed")
    found.update({name: getattr(arguments, name) for name in (*names, "field")})
    found.update({name: getattr(arguments, name) for name in ("scheduler", "workers", "memory", "scratch")})
    other = ONE if arguments.unseen is None else TWO
    for name in other:
        if found.pop(name):
            what = "goes with --unseen" if arguments.unseen is None else "does not go with --unseen"
            raise OptionError(f"--{name.replace('_', '-')} {what}")
    return {**{name: one for name, one in found.items() if one is not None}, "tls": tls_of(arguments)}


def run(arguments: argparse.Namespace) -> None:
    """Compare, and print the table."""
    from collapsium.storage.io.folder import Folder

    options = _options(arguments)
    from collapsium.pipeline.workflows.compare.heldout import (
        compare,  # load the compiler: not before the options are right
    )
    from collapsium.pipeline.workflows.compare.progress import GridView
    from collapsium.pipeline.workflows.compare.unseen.compare import compare_unseen

    view = GridView(form=arguments.log_format)
    begun: list[bool] = []
    sinks: list[Any] = [lambda event: begun.append(True) if event["event"] == "grid" else None]
    sinks += [] if arguments.quiet else [view]
    try:
        work: Any = compare if arguments.unseen is None else compare_unseen
        found = work(arguments.corpus, arguments.out, sinks=sinks, **options)
    except BaseException:
        view.close()
        if begun and Folder(arguments.out).exists():
            again = shlex.join(["collapsium", *arguments.words])
            view.log.write(f"{arguments.out}: what is fitted so far is kept; go on with `{again}`")
        raise
    finally:
        view.close()
    (_say if arguments.unseen is None else _say_unseen)(found, arguments)


def _say(found: Comparison, arguments: argparse.Namespace) -> None:
    if arguments.json:
        rows, peers = list(found.rows), list(found.peers)
        print_json({"out": found.folder, "cells": rows, "peers": peers, "left_out": list(found.left_out)})
        return
    from collapsium.pipeline.workflows.compare.metrics import table_text

    table, _, _ = table_text(found.rows, found.left_out).partition("\n\n* ")
    print(table.partition("\n\n")[2])
    print(f"\n{found.folder}: table.md says how each is defined; {len(found.plots)} plots, {len(found.peers)} peers")


def _say_unseen(found: UnseenComparison, arguments: argparse.Namespace) -> None:
    if arguments.json:
        rows, others = list(found.rows), list(found.classifiers)
        print_json({"out": found.folder, "cells": rows, "classifiers": others, "left_out": list(found.left_out)})
        return
    from collapsium.pipeline.workflows.compare.unseen.metrics import text_of

    table, _, _ = text_of(found.rows, found.classifiers, ()).partition("\n\n* ")
    print(table.partition("\n\n")[2])
    print(f"\n{found.folder}: table.md says how each is defined; {len(found.plots)} plots")
