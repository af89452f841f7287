"""Tables of comparisons with other methods, as Markdown."""

from typing import NamedTuple

from collapsium.pipeline.reporting.plots.comparison import label_of as label_of_cell
from collapsium.pipeline.workflows.compare import number_text

SHOWN_CLASSES = 12  # Number of classes whose F1 the report shows


class Column(NamedTuple):
    """A column of a Markdown table: its head, and the text of a row's cell; numbers are aligned to the right."""

    head: str
    text: object
    number: bool = True


def number_column(head, field, form):
    """Return a column of numbers in a format."""
    return Column(head, lambda row: number_text(row[field], form))


def label_of(row, *, topics=True):
    """Return the label of a fit: its family or other method, K if `topics`, and its start unless it is random."""
    return label_of_cell({**row, "family": row.get("family") or row["baseline"]}, topics=topics)


def iterations_text(row):
    """Return the numbers of iterations and of averaged samples of a fit, as text."""
    return f"{row['iterations']}" + (f", {row['samples']} samples" if row["samples"] else "")


def table_lines(columns, rows):
    """Return the lines of a Markdown table."""
    body = [[column.text(row) for column in columns] for row in rows]
    rule = ["---:" if column.number else "---" for column in columns]
    return [f"| {' | '.join(cells)} |" for cells in ([column.head for column in columns], rule, *body)]


def perplexity_table(rows):
    """Return a table of the families by perplexity given labels, the best first."""
    columns = (
        Column("", label_of, number=False),
        number_column("perplexity", "perplexity", ".1f"),
        number_column("of the mean prediction (score)", "ensemble_score", ".4f"),
        number_column("seconds per fit", "seconds", ".1f"),
    )
    return table_lines(columns, sorted(rows, key=lambda row: row["perplexity"]))


def classification_table(rows):
    """Return a table of all families and classifiers that predict the field."""
    predicting = [row for row in rows if row["classified"]]
    support = {}
    for row in predicting:
        for scored in row["classified"]["classes"]:
            value = _value_text(scored["value"])
            support[value] = max(support.get(value, 0), scored["support"])
    shown = sorted(sorted(support, key=lambda value: -support[value])[:SHOWN_CLASSES])
    columns = (
        Column("", label_of, number=False),
        number_column("accuracy", "accuracy", ".3f"),
        number_column("macro F1", "macro_f1", ".3f"),
        number_column("micro F1", "micro_f1", ".3f"),
        *(_f1_column(value) for value in shown),
        number_column("seconds to fit", "seconds", ".1f"),
        number_column("to predict", "predict_seconds", ".1f"),
        Column("tuned", lambda row: ", ".join(f"{name} = {value}" for name, value in (row.get("tuned") or {}).items())),
    )
    return table_lines(columns, predicting)


def _value_text(value):
    return value if isinstance(value, str) else f"{value:g}"


def _f1_column(value):
    def text(row):
        f1 = {_value_text(value["value"]): value["f1"] for value in row["classified"]["classes"]}
        return number_text(f1.get(value), ".3f")

    # Values are arbitrary texts and must not break the table.
    printable = "".join(character if character.isprintable() else " " for character in value).replace("|", "/")
    return Column(f"F1 of {printable}", text)
