"""Options of the commands that read fitted models: topics, scores and proportions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from collapsium.pipeline.options import Location, Locations, Names, Options, Texts, Value


class TopicOptions(Options):
    """Number of words shown for each topic."""

    words: Annotated[int | None, Value("N")] = Field(
        None, description="number of words shown for each topic (default: 10, and 5 in pictures)"
    )


class LabelOptions(Options):
    """Relations between labels and topics."""

    heading = "labels (families with labels)"
    given: Annotated[Texts | None, Value("LABEL,LABEL")] = Field(
        None,
        description="print the topics expected of a document with these labels: a value, field=value if "
        "several fields have that value, or name=number for a covariate; may be repeated, and a "
        "label that contains a comma needs a flag of its own",
    )
    labels: bool = Field(False, description="print each label with the topics that it raises most")
    csv: Annotated[Location | None, Value("FILE")] = Field(
        None, description="with `labels`: write the complete table, one row for each label and topic"
    )


class EvaluateOptions(Options):
    """Documents to score, and the score's definition."""

    heldout: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="score held-out tokens of the training documents or, with `unseen`, of those documents"
    )
    unseen: Annotated[Locations | None, Value("CORPUS|TEXTS", text=True)] = Field(
        None,
        description="score other documents or vectors: a corpus with the same vocabulary or columns, or "
        "texts, which are read as the model's documents were",
    )
    in_document: Annotated[Locations | None, Value("CORPUS|TEXTS", text=True)] = Field(
        None, description="score other documents on the same tokens that their proportions are fitted to"
    )
    given_labels: bool = Field(
        False,
        description="with `unseen`: print the score given the labels alone, also for families without labels "
        "(it is then the score under the prior)",
    )
    field: Annotated[Names, Value("NAME,...")] = Field(
        (),
        description="with `unseen`: score the prediction of this field of labels, or covariate: accuracy, F1 "
        "and confusion matrix (complete with `json`); may be repeated",
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed by which the tokens of unseen documents are halved")


class CoherenceOptions(Options):
    """Documents in which co-occurrences of the topics' words are counted."""

    coherence: Annotated[Location | None, Value("CORPUS|TEXTS")] = Field(
        None,
        description="documents in which co-occurrences of the topics' words are counted, such as the training corpus",
    )


class InferOptions(Options):
    """Layout of the proportions' file."""

    dense: bool = Field(False, description=".parquet and .csv: one column for each topic")
    segments: bool = Field(
        False, description="one row for each segment instead of each document, for families that model segments"
    )
    threshold: Annotated[float | None, Value("F", expected="a share in [0, 1)")] = Field(
        None, ge=0, lt=1, description="sparse output: leave out smaller proportions (default: 0.001)"
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed, for families that draw random numbers")
    member: Annotated[int | None, Value("M")] = Field(
        None,
        description="number of the restart or sample whose proportions are written (default: the first "
        "restart, the last sample)",
    )
