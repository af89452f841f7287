"""Options of commands on fitted models: topics, scores and proportions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from collapsium.pipeline.options import Location, Locations, Names, Options, Texts, Value


class TopicOptions(Options):
    """How much is listed of topics."""

    words: Annotated[int | None, Value("N")] = Field(None, description="words of each (default: 10, and 5 in pictures)")


class LabelOptions(Options):
    """What labels say of topics."""

    heading = "labels (of families that take them)"
    given: Annotated[Texts | None, Value("LABEL,LABEL")] = Field(
        None,
        description="expected topics given these labels (value, or field=value where several fields have it) and "
        "numbers (name=number); may be given again, and a label with a comma by itself",
    )
    labels: bool = Field(False, description="each label, with the topics that it raises most")
    csv: Annotated[Location | None, Value("FILE")] = Field(
        None, description="of `labels`: write the whole table, a row a label and topic"
    )


class EvaluateOptions(Options):
    """What is scored, and how."""

    heldout: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="further tokens of the training documents or, with `unseen`, of those"
    )
    unseen: Annotated[Locations | None, Value("CORPUS|TEXTS", text=True)] = Field(
        None,
        description="other documents or vectors: a corpus with the same vocabulary or columns, or texts, read as the "
        "model's own were",
    )
    in_document: Annotated[Locations | None, Value("CORPUS|TEXTS", text=True)] = Field(
        None, description="other documents, likewise, whose tokens are fitted and scored alike"
    )
    given_labels: bool = Field(
        False, description="of `unseen`, also the score given labels alone where there are none: that of the prior"
    )
    field: Annotated[Names, Value("NAME,...")] = Field(
        (),
        description="of `unseen`, how well this field of labels, or number, is predicted: accuracy, F1, confusion "
        "matrix (`json` has all of it); may be repeated",
    )
    seed: Annotated[int, Value("S")] = Field(0, description="chooses the halves of unseen documents")


class CoherenceOptions(Options):
    """In what documents the topics' words are counted."""

    coherence: Annotated[Location | None, Value("CORPUS|TEXTS")] = Field(
        None, description="documents in which the topics' words are counted, such as the training ones"
    )


class InferOptions(Options):
    """How proportions are written."""

    dense: bool = Field(False, description="of .parquet and .csv: a column for each topic")
    segments: bool = Field(False, description="a row a segment, of families that know segments: id, segment, ...")
    threshold: Annotated[float | None, Value("F", expected="a share in [0, 1)")] = Field(
        None, ge=0, lt=1, description="of sparse output: leave out smaller proportions (default: 0.001)"
    )
    seed: Annotated[int, Value("S")] = Field(0, description="for families that draw numbers")
    member: Annotated[int | None, Value("M")] = Field(
        None,
        description="of an ensemble or of samples: whose proportions (default: the first restart's, the last sample's)",
    )
