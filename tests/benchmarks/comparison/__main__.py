"""Families beside other libraries and classifiers: `python -m tests.benchmarks.comparison CORPUS OUT ...`.

Runs `collapsium compare CORPUS OUT` with the options that are not listed here, and adds to OUT what the tables and plots
of papers need: other libraries fitted to the same tokens (`--peers`; peers.md), and plots after Figures 2 and 3 of Teh,
Kurihara and Welling (2007). With `--unseen`, families that use labels are fitted to all tokens instead, and compared by
the perplexity of other documents given their labels alone and by the prediction of a field, beside classifiers
(`--field`, `--classifiers`; labels.md). An interrupted command is continued by the same command.

Libraries are scored as the families are. Classifiers hold all documents in memory and are tuned on a tenth of the
training documents. lda-svm is a linear SVM on LDA proportions and the other labels; naive-bayes, svm (linear, on TF-IDF)
and tree are scikit-learn's, on words; slda is tomotopy's supervised LDA.

examples:
  python -m tests.benchmarks.comparison kos out --families lda --topics 120 --peers scikit-learn,gensim \\
      --peer-set gensim.iterations=20 --peer-set topica.sampler=warp
  python -m tests.benchmarks.comparison train out --unseen test --families hdsp --field stars --classifiers all
"""

import argparse
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

from collapsium.pipeline.cli.main import main as run_collapsium
from collapsium.pipeline.workflows.compare_options import CompareOptions, parse_settings
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import PARTS, RUNS, TABLE, record_of, row_of
from tests.benchmarks.comparison.base import BaselineError
from tests.benchmarks.comparison.classifiers import CLASSIFIERS, LabelledDocuments, classifier_fits
from tests.benchmarks.comparison.labelled import LABELLED, labelled_rows
from tests.benchmarks.comparison.libraries import LIBRARIES, library_fits, library_report
from tests.benchmarks.comparison.plots import Results, draw_plots, series_of
from tests.benchmarks.comparison.tables import classification_table, perplexity_table

BASELINES = "baselines"  # Folder of the rows of other libraries and classifiers, and of fits of LDA for lda-svm
FORWARDED = ("heldout", "workers")  # Options that `collapsium compare` has too
# Options of the grid with `--unseen`, as `collapsium compare` has them
GRID = ("families", "topics", "restarts", "iterations", "seed", "samples", "sample_every")
NOTES = """\
Families predict the value under which a document's perplexity given its labels is lowest; they are not tuned. Parameters
of classifiers are tuned by macro F1 on a random tenth of the training documents; the classifier is then fitted to all
documents with exactly one value. Accuracy: share of correct predictions, over the unseen documents with words and a value.
F1 is over documents with exactly one value; micro F1 is their accuracy, macro F1 the mean over values. Seconds to fit
include tuning and, of lda-svm, LDA; of classifiers they include predicting.
"""


def names_of(text):
    """Read names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def numbers_of(text):
    """Read whole numbers with commas between them."""
    return tuple(int(name) for name in names_of(text))


def parser_of():
    """Return the parser of the options that `collapsium compare` lacks, and of those that both need."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("corpus")
    parser.add_argument("out")
    for name in FORWARDED:
        parser.add_argument(f"--{name}", help="as for `collapsium compare`")
    parser.add_argument("--unseen", help="corpus of other documents, scored given their labels alone")
    parser.add_argument("--field", help="with --unseen: the field of labels, or the covariate, to predict")
    parser.add_argument("--peers", type=names_of, default=(), help=f"libraries: {', '.join(LIBRARIES)}")
    parser.add_argument("--peer-set", action="append", default=[], metavar="NAME.OPTION=VALUE", help="of a library")
    parser.add_argument("--classifiers", type=names_of, default=(), help=f"all, or some of {', '.join(CLASSIFIERS)}")
    parser.add_argument("--lda-topics", type=numbers_of, default=(200,), help="of lda-svm (default: 200)")
    parser.add_argument("--slda-topics", type=numbers_of, default=(50,), help="of slda (default: 50)")
    parser.add_argument(
        "--svm-labels", type=names_of, action="append", default=[], help="of lda-svm (default: all other fields)"
    )
    parser.add_argument("--covariates", type=names_of, default=(), help="of lda-svm")
    return parser


def measured(out, name, measure, left_out):
    """Return the row of another method, measured now unless it was recorded; None if the method cannot be fitted."""
    path = Path(out) / BASELINES / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        row = measure()
    except BaselineError as error:
        left_out.append(f"{name}: {error}")
        return None
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(row))
    return row


def added(arguments):
    """Fit and measure the other libraries for a finished comparison; return all rows and what is left out."""
    out, record, left_out = Path(arguments.out), record_of(Folder(arguments.out)), []
    train, heldout = [str(out / part) if (out / part).exists() else None for part in PARTS]
    train, heldout = train or arguments.corpus, heldout or arguments.heldout
    rows = [row_of(Folder(arguments.out), name) for name in pq.read_table(out / TABLE)["cell"].to_pylist()]
    baselines = []
    if arguments.peers:
        for fit in library_fits(arguments.peers, record, parse_settings(arguments.peer_set)):
            how = (train, heldout, record["seed"], arguments.workers)
            baselines.append(measured(out, fit.name, lambda fit=fit, how=how: fit.measure(*how), left_out))
        baselines = [row for row in baselines if row is not None]
        firsts = {row["cell"]: out / RUNS / row["cell"] / "members/000" for row in rows}
        about = [f"Corpora: {train}, {heldout}", *(f"Left out: {reason}" for reason in left_out)]
        (out / "peers.md").write_text(library_report(rows, baselines, firsts, about))
    return {**record, "unseen": None}, rows, baselines, left_out


def labelled(arguments, further):
    """Compare families and classifiers on unseen documents; return the options, all rows and what is left out."""
    out, left_out, baselines = Path(arguments.out), [], []
    out.mkdir(exist_ok=True)
    options = grid_options(further)
    corpora = Corpus(arguments.corpus), Corpus(arguments.unseen)
    rows = labelled_rows(*corpora, out, options, arguments.field, arguments.workers)
    lines = ["# Families on unseen documents given their labels", "", *perplexity_table(rows), ""]
    if arguments.classifiers:
        names = CLASSIFIERS if arguments.classifiers == ("all",) else arguments.classifiers
        documents = LabelledDocuments(*corpora, arguments.field, options.seed, options.iterations, arguments.workers)
        chosen = {"lda_topics": arguments.lda_topics, "slda_topics": arguments.slda_topics}
        chosen |= {"labels": arguments.svm_labels, "covariates": arguments.covariates}
        fits = classifier_fits(names, documents, str(out / BASELINES), **chosen)
        measures = (measured(out, fit.name, fit.measure, left_out) for fit in fits)
        baselines = [row for row in measures if row is not None]
    if arguments.field is not None:
        lines += [f"# Prediction of {arguments.field}", "", *classification_table([*rows, *baselines]), "", NOTES]
    lines += [f"* Left out: {reason}" for reason in left_out]
    (out / "labels.md").write_text("\n".join(lines))
    return {**options.record(), "unseen": arguments.unseen}, rows, baselines, left_out


def grid_options(words):
    """Return the options of the grid that words of the command line name; without families, all that use labels."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in GRID:
        parser.add_argument(f"--{name.replace('_', '-')}")
    for name in ("set", "vary"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--quiet", action="store_true")
    found = vars(parser.parse_args(words))
    options = {"families": LABELLED, "topics": "200", "restarts": "1"}
    options |= {name: found[name] for name in GRID if found[name] is not None}
    numbers = {name: int(options[name]) for name in GRID[2:] if name in options}
    return CompareOptions(**{**options, **numbers, "settings": found["set"], "vary": found["vary"], "over": "families"})


def main(words=None):
    """Compare families, add the other methods, and draw the plots; return all rows, and what is left out."""
    parser = parser_of()
    arguments, further = parser.parse_known_args(words)
    if arguments.peers and arguments.unseen is not None:
        parser.error("--peers cannot be combined with --unseen")
    if arguments.classifiers and (arguments.unseen is None or arguments.field is None):
        parser.error("--classifiers requires --unseen and --field")
    arguments.workers = None if arguments.workers is None else int(arguments.workers)
    try:
        if arguments.unseen is not None:
            record, rows, baselines, left_out = labelled(arguments, further)
        else:
            shared = [(f"--{name}", getattr(arguments, name)) for name in FORWARDED]
            forwarded = [str(text) for pair in shared if pair[1] is not None for text in pair]
            if code := run_collapsium(["compare", arguments.corpus, arguments.out, *forwarded, *further]):
                sys.exit(code)
            record, rows, baselines, left_out = added(arguments)
    except OptionError as error:
        parser.error(str(error))
    except CollapsiumError as error:
        sys.exit(str(error))
    folder = Folder(arguments.out)
    series = (
        [] if arguments.unseen is not None else [line for row in rows for line in series_of(row, Path(arguments.out))]
    )
    plots = draw_plots(Results(record, rows, baselines, series), folder / "plots")
    print(f"{arguments.out}: {len(baselines)} other methods, plots {', '.join(plots)}")
    for reason in left_out:
        print(f"left out: {reason}")
    return [*rows, *baselines], left_out


if __name__ == "__main__":
    main()
