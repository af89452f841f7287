"""Options of reports, plots, exports and predictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from collapsium.pipeline.corpora.options import Sources
from collapsium.pipeline.engine.edit_options import names_by_topic
from collapsium.pipeline.options import Location, Names, Options, Texts, Value
from collapsium.storage.errors import OptionError, near


def _numbers(value: object) -> object:
    if isinstance(value, str):
        return tuple(int(number) for number in value.split(","))
    return tuple(value) if isinstance(value, Iterable) else (value,)


Candidates = Annotated[
    tuple[str | float, ...],
    BeforeValidator(
        lambda value: tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
    ),
]


def _inches(value: object) -> object:
    if isinstance(value, str):
        return tuple(float(number) for number in value.split(","))
    return tuple(value) if isinstance(value, Iterable) else value


def _length(size: tuple[float, float]) -> tuple[float, float]:
    if not all(0.0 < length <= MAX_INCHES for length in size):
        raise ValueError(f"expected lengths up to {MAX_INCHES} inches")
    return size


NAMED = ("documents", "words", "tokens", "topics")  # What may have other names in reports and pictures


def nouns_of(texts: Sequence[str]) -> dict[str, str]:
    """Return names of documents, words, tokens and topics from texts such as ``documents=cells``."""
    nouns: dict[str, str] = {}
    for text in texts:
        what, _, noun = (part.strip() for part in text.partition("="))
        if what not in NAMED or not noun:
            raise OptionError(
                f"expected WHAT=NOUN with one of {', '.join(NAMED)}, found {text!r}{near(what, NAMED)}", "noun"
            )
        nouns[what] = noun
    return nouns


def renamed(text: str, nouns: Mapping[str, str]) -> str:
    """Return a text of ours with the names that documents, words, tokens and topics have in a picture."""

    def noun(match: re.Match[str]) -> str:
        name = nouns.get(match[0].lower(), match[0])
        return name[:1].upper() + name[1:] if match[0][0].isupper() else name

    return re.sub(rf"\b(?:{'|'.join(NAMED)})\b", noun, text, flags=re.IGNORECASE)


MAX_INCHES = 200
Nouns = Annotated[Texts, Value("WHAT=NOUN", note="may be repeated")]
Inches = Annotated[tuple[float, float], BeforeValidator(_inches), AfterValidator(_length)]
TopicIds = Annotated[tuple[int, ...], BeforeValidator(_numbers)]

_CLUSTER = (
    "field whose values are clusters, such as the speech that paragraphs are from. The bands of topics over time then "
    "allow for the similarity of documents in a cluster; this reads the corpus"
)


class FoldingOptions(Options):
    """Branches of a tree that are folded into a single entry."""

    heading = "trees"
    min_share: Annotated[float | None, Value("SHARE", expected="a share from 0 to 1, such as 0.01")] = Field(
        None, description="fold nodes whose subtree has a smaller share of the tokens, such as 0.01"
    )
    levels: Annotated[int | None, Value("N")] = Field(
        None, description="show N levels, the root included, and fold the nodes below them"
    )


class TreeFileOptions(Options):
    """Files of a tree of topics; families without a tree refuse them."""

    heading = "trees"
    picture: Annotated[Texts, Value("FILE", note="may be repeated")] = Field(
        (), description="draw the tree into a .svg, .png or .pdf file (needs the extra 'plots')"
    )
    graphml: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="write the tree as GraphML for networkx, Gephi or yEd: nodes with label, words, share, "
        "below and level; edges from parent to child",
    )


class ReportOptions(Options):
    """Sources of example documents and their passages."""

    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="location of the training corpus, needed only if the run has no summary of its documents"
    )
    texts: Annotated[Sources, Value("SOURCE", note="may be repeated")] = Field(
        None,
        description="source texts of the corpus (files, folders or globs; in Python also a list, column or frame of "
        "texts): the report then shows passages of the example documents with the topics' words marked",
    )
    title: Annotated[str | None, Value("TEXT")] = Field(
        None, description="title of the page (default: the name of the run)"
    )
    noun: Nouns = Field(
        (),
        description="what documents, words, tokens or topics are called on the page, such as documents=cells",
    )


class FieldOptions(Options):
    """Sections of a report on fields of the documents."""

    heading = "fields of the documents"
    effects: Annotated[str | None, Value("FORMULA")] = Field(
        None,
        description="add a section on the effects of fields on the topics, with intervals, such as '~ party + bs(year, "
        "df=5)': a curve along each number, and the differences between labels, unless `at` and `contrast` select "
        "others (needs the extra 'covariates')",
    )
    words_by: Annotated[str | None, Value("FIELD")] = Field(
        None, description="add a section on the words that the groups of a field use more for a topic"
    )
    words_over: Annotated[str | None, Value("PERIOD")] = Field(
        None, description="add a section on the words of topics by period, such as decade or '5 years'"
    )
    word_topics: Annotated[TopicIds | None, Value("ID,...", expected="ids of topics", text=True)] = Field(
        None, description="topics of the sections on words (default: the four largest)"
    )


class PlotOptions(Options):
    """Panels to draw."""

    what: Annotated[Names | None, Value("WHAT,...")] = Field(
        None,
        description="panels to draw: score, change, objective, topics, parameters, sizes, map, "
        "labels, segments, time or tree (default: all for which the run has data, except labels, segments, time and "
        "tree)",
    )
    title: Annotated[str | None, Value("TEXT")] = Field(
        None, description="title of the picture (default: the name of the run, or what is drawn over time)"
    )
    size: Annotated[Inches | None, Value("W,H", unit="inches", expected="a width and a height", text=True)] = Field(
        None, description="width and height of the picture in inches (default: depends on the panels)"
    )
    noun: Nouns = Field(
        (),
        description="what documents, words, tokens or topics are called in the picture, such as documents=cells",
    )
    names: Annotated[
        dict[int, str] | None, BeforeValidator(names_by_topic), Value("ID=NAME", note="may be repeated")
    ] = Field(None, description="names of topics by id, in place of their titles or words")


class SegmentPlotOptions(Options):
    """Document whose segments are drawn, and a second run to compare with."""

    heading = "segments"
    document: Annotated[str | None, Value("ID")] = Field(
        None, description="id of the document (default: the document with the most segments)"
    )
    compare_with: Annotated[Location | None, Value("RUN")] = Field(
        None, description="second run, drawn next to the first with matching topics in the same colours"
    )


class TimePlotOptions(Options):
    """Period of the topic shares over time."""

    heading = "time"
    period: Annotated[str | None, Value("PERIOD")] = Field(
        None,
        description="hour, day, week, month, quarter, year or decade; a width such as '5 years' or '4 years from "
        "1789'; or a field of labels, such as the term of office (default: one that gives about 10 to 40 periods)",
    )
    cluster: Annotated[str | None, Value("FIELD")] = Field(None, description=_CLUSTER)
    same_scale: bool = Field(False, description="give all topics the same scale")
    csv: Annotated[Location | None, Value("FILE")] = Field(
        None, description="write the shares of all topics, one row for each period and topic"
    )


class TopicPlotOptions(Options):
    """Topics to draw along segments or over time."""

    heading = "segments and time"
    topics: Annotated[TopicIds | None, Value("ID,...", expected="ids of topics", text=True)] = Field(
        None,
        description="ids of the topics to draw: at most ten colours (segments), at most twelve panels (time) "
        "(default: the largest and, for time, those that change most)",
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="location of the run's training corpus, if it was moved"
    )


class ExportOptions(Options):
    """Program that a model is exported to."""

    to: Literal["anndata", "csv", "pyldavis"] = Field(description="format of the export")


class TableOptions(Options):
    """Contents of exported tables."""

    heading = "contents (csv, anndata)"
    threshold: Annotated[float, Value("F", expected="a share in [0, 1)")] = Field(
        0.001, ge=0, lt=1, description="csv: leave out probabilities and proportions below this"
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="location of the run's training corpus, if it was moved"
    )


class PredictOptions(Options):
    """Field to predict, and the values to choose from."""

    field: Annotated[str, Value("NAME")] = Field(description="the field of labels, or the covariate, to predict")
    values: Annotated[
        Candidates | None, Value("V,V", note="may be repeated, and a value that contains a comma needs a separate flag")
    ] = Field(
        None,
        description="candidate values (default: all labels of the field in training, or all numbers if they are few)",
    )
    confusion: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="draw the confusion matrix of known and predicted values into a .png, .svg or .pdf file (needs "
        "the extra 'plots')",
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed, for families that draw random numbers")
