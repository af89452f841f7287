"""Options of reports, pictures, exports and predictions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from collapsium.pipeline.options import Location, Locations, Options, Texts, Value


def _numbers(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(int(one) for one in value.split(","))
    return tuple(value) if isinstance(value, Iterable) else value


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


Candidates = Annotated[tuple[str | float, ...], BeforeValidator(_listed)]
TopicIds = Annotated[tuple[int, ...], BeforeValidator(_numbers)]


class FoldingOptions(Options):
    """Which branches of a tree are folded."""

    heading = "trees"
    min_share: Annotated[float | None, Value("SHARE")] = Field(
        None, description="fold nodes that have less, with those below them, such as 0.01"
    )
    levels: Annotated[int | None, Value("N")] = Field(
        None, description="fold nodes below the first N levels; the root is the first"
    )


class TreeFileOptions(Options):
    """Files of a tree, which is refused where topics are no tree."""

    heading = "trees"
    picture: Annotated[Texts, Value("FILE")] = Field(
        (), description="draw the tree, by the file's ending as .svg or .png; may be given again (extra: plots)"
    )
    graphml: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="write the tree for networkx, Gephi, yEd and others: nodes with label, words, share, below and "
        "level, edges from parent to child",
    )


class ReportOptions(Options):
    """What a report shows besides."""

    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="where the training corpus lies by now, if the run has no summary of it"
    )
    texts: Annotated[Locations | None, Value("SOURCE")] = Field(
        None,
        description="texts that were ingested (file, folder or glob; may be given again): passages of the example "
        "documents are shown, with the topics' words marked",
    )


class PlotOptions(Options):
    """What is drawn."""

    what: Annotated[Texts | None, Value("WHAT")] = Field(
        None,
        description="score, objective, topics, parameters, sizes, map, labels, segments, time, tree; may be "
        "given again "
        "(default: all that there is, but labels, segments, time and tree)",
    )


class SegmentPlotOptions(Options):
    """Whose segments are drawn."""

    heading = "segments"
    document: Annotated[str | None, Value("ID")] = Field(
        None, description="the document (default: that of most segments)"
    )
    beside: Annotated[Location | None, Value("RUN")] = Field(None, description="another run, to be drawn next to it")


class TimePlotOptions(Options):
    """Which shares by period are drawn."""

    heading = "time"
    period: Annotated[str | None, Value("PERIOD")] = Field(
        None, description="hour, day, week, month, quarter, year or decade"
    )
    csv: Annotated[Location | None, Value("FILE")] = Field(
        None, description="write the shares of all topics: a row for each period and topic"
    )


class TopicPlotOptions(Options):
    """Whose course is drawn."""

    heading = "segments and time"
    topics: Annotated[TopicIds | None, Value("ID,...", expected="ids of topics", text=True)] = Field(
        None,
        description="topics that have colours, ten at most, or panels, twelve at most (default: the largest; of time "
        "also those that change most)",
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="where the training corpus of the run lies by now"
    )


class ExportOptions(Options):
    """For whom a model is written."""

    to: Literal["csv", "gensim", "pyldavis"] = Field(description="for whom")


class TableOptions(Options):
    """What the tables of an export hold."""

    heading = "csv"
    threshold: Annotated[float, Value("F", expected="a share in [0, 1)")] = Field(
        0.001, ge=0, lt=1, description="leave out smaller probabilities and proportions"
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="where the training corpus lies by now, if it was moved"
    )


class PredictOptions(Options):
    """What is predicted."""

    field: Annotated[str, Value("NAME")] = Field(description="the field of labels, or the number, to predict")
    values: Annotated[Candidates | None, Value("V,V")] = Field(
        None,
        description="among what to choose; may be given again, and a value with a comma by itself (default: all labels "
        "of the field in training, or all numbers, where they are few)",
    )
    confusion: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="picture to draw, .png or .svg: documents by what they have and what was predicted (extra: plots)",
    )
    seed: Annotated[int, Value("S")] = Field(0, description="for families that draw numbers")
