"""Families beside other libraries and classifiers: `python -m tests.benchmarks.comparison CORPUS OUT ...`.

Runs `collapsium compare CORPUS OUT` with the options that are not listed here, and adds to OUT what the tables and plots
of papers need: other libraries fitted to the same tokens (`--peers`; peers.md), classifiers of a field of unseen
documents (`--classifiers`; classifiers.md), and plots after Figures 2 and 3 of Teh, Kurihara and Welling (2007), of
perplexities and of classes. An interrupted command is continued by the same command.

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
from collapsium.pipeline.workflows.compare.options import parse_settings
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import PARTS, RUNS, SERIES_FILE, TABLE, record_of, row_of
from tests.benchmarks.comparison.base import BaselineError
from tests.benchmarks.comparison.classifiers import CLASSIFIERS, LabelledDocuments, classifier_fits
from tests.benchmarks.comparison.libraries import LIBRARIES, library_fits, library_report
from tests.benchmarks.comparison.plots import Results, draw_plots
from tests.benchmarks.comparison.tables import classification_table

BASELINES = "baselines"  # Folder of the rows of other libraries and classifiers, and of fits of LDA for lda-svm
FORWARDED = ("heldout", "unseen", "field", "workers")  # Options that `collapsium compare` has too
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
    """Return the row of another method, recorded before or measured now; None if it cannot be fitted."""
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


def added(given):
    """Fit and measure the other methods beside a finished comparison; return their rows and what is left out."""
    out, record, left_out = Path(given.out), record_of(Folder(given.out)), []
    train, heldout = [str(out / part) if (out / part).exists() else None for part in PARTS]
    train, heldout = train or given.corpus, heldout or given.heldout
    workers = None if given.workers is None else int(given.workers)
    rows = [row_of(Folder(given.out), name) for name in pq.read_table(out / TABLE)["cell"].to_pylist()]
    baselines = []
    if given.peers:
        for fit in library_fits(given.peers, record, parse_settings(given.peer_set)):
            how = (train, heldout, record["seed"], workers)
            baselines.append(measured(out, fit.name, lambda fit=fit, how=how: fit.measure(*how), left_out))
        baselines = [row for row in baselines if row is not None]
        firsts = {row["cell"]: out / RUNS / row["cell"] for row in rows}
        runs = {
            name: next(run for run in (at / "members/000", at / "000") if run.exists()) for name, at in firsts.items()
        }
        about = [f"Corpora: {train}, {heldout}", *(f"Left out: {reason}" for reason in left_out)]
        (out / "peers.md").write_text(library_report(rows, baselines, runs, about))
    if given.classifiers:
        names = CLASSIFIERS if given.classifiers == ("all",) else given.classifiers
        corpora = Corpus(given.corpus), Corpus(given.unseen)
        documents = LabelledDocuments(*corpora, given.field, record["seed"], record["iterations"], workers)
        chosen = {"lda_topics": given.lda_topics, "slda_topics": given.slda_topics}
        chosen |= {"labels": given.svm_labels, "covariates": given.covariates}
        for fit in classifier_fits(names, documents, str(out / BASELINES), **chosen):
            baselines.append(measured(out, fit.name, fit.measure, left_out))
        baselines = [row for row in baselines if row is not None]
        lines = [f"# Prediction of {given.field}", "", *classification_table([*rows, *baselines]), "", NOTES]
        lines += [f"* Left out: {reason}" for reason in left_out]
        (out / "classifiers.md").write_text("\n".join(lines))
    return rows, baselines, left_out


def main(words=None):
    """Compare families, add the other methods, and draw the plots; return all rows, and what is left out."""
    parser = parser_of()
    given, further = parser.parse_known_args(words)
    if given.peers and given.unseen is not None:
        parser.error("--peers cannot be combined with --unseen")
    if given.classifiers and (given.unseen is None or given.field is None):
        parser.error("--classifiers requires --unseen and --field")
    shared = [(f"--{name}", getattr(given, name)) for name in FORWARDED]
    forwarded = [text for pair in shared if pair[1] is not None for text in pair]
    if code := run_collapsium(["compare", given.corpus, given.out, *forwarded, *further]):
        sys.exit(code)
    try:
        rows, baselines, left_out = added(given)
    except OptionError as error:
        parser.error(str(error))
    except CollapsiumError as error:
        sys.exit(str(error))
    series = pq.read_table(Path(given.out) / SERIES_FILE).to_pylist()
    folder = Folder(given.out)
    plots = draw_plots(Results(record_of(folder), rows, baselines, series), folder / "plots")
    print(f"{given.out}: {len(baselines)} other methods, plots {', '.join(plots)}")
    for reason in left_out:
        print(f"left out: {reason}")
    return [*rows, *baselines], left_out


if __name__ == "__main__":
    main()
