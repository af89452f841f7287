"""Options of the commands that read fitted models: topics, scores and proportions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from collapsium.pipeline.corpora.options import Sources
from collapsium.pipeline.options import Location, Names, Options, Texts, Value

MAX_PERMUTATIONS = 100_000  # Each passes over all documents; a rate of 5% is then known to 0.1 percentage points


class TopicOptions(Options):
    """Number of words shown for each topic, and their names."""

    words: Annotated[int | None, Value("N")] = Field(
        None, description="number of words shown for each topic (default: 10, and 5 in pictures)"
    )
    name: Annotated[str | None, Value("NAMER")] = Field(
        None,
        description="name the topics, and save the names with the model: MODULE:FUNCTION is called with a topic's "
        "words and texts of its example documents, and returns the name",
    )


class NamerOptions(Options):
    """Texts that a namer is shown."""

    texts: Annotated[Sources, Value("SOURCE", note="may be repeated")] = Field(
        None,
        description="source texts of the corpus (files, folders or globs; in Python also a list, column or frame of "
        "texts): a namer is shown passages of each topic's example documents instead of their titles",
    )


class ExampleOptions(Options):
    """Texts from which passages are shown."""

    texts: Annotated[Sources, Value("SOURCE")] = Field(
        None,
        description="texts that the model was fitted to (files, folders or globs, a list, column or frame), from which "
        "a passage of each document is shown",
    )


class LabelOptions(Options):
    """Relations between labels and topics."""

    heading = "labels (families with labels)"
    given: Annotated[
        Texts | None,
        Value("LABEL,LABEL", note="may be repeated, and a label that contains a comma needs a separate flag"),
    ] = Field(
        None,
        description="print the topics expected of a document with these labels: a value, field=value if "
        "several fields have that value, or name=number for a covariate",
    )
    labels: bool = Field(False, description="print each label with the topics that it raises most")
    csv: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="with `labels`: write the complete table, one row for each label and topic; words that a "
        "spreadsheet would run as formulas have an apostrophe in front",
    )


class EvaluateOptions(Options):
    """Documents to score, and the score's definition."""

    heldout: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="score held-out tokens of the training documents or, with `unseen`, of the unseen documents"
    )
    unseen: Annotated[Sources, Value("CORPUS|TEXTS", text=True)] = Field(
        None,
        description="score other documents or vectors: a corpus with the same vocabulary or columns, or texts, which "
        "are read like the model's documents",
    )
    given_labels: bool = Field(
        False,
        description="with `unseen`: compute the score given only the labels, even for families without labels (it is "
        "then the score under the prior)",
    )
    field: Annotated[Names, Value("NAME,...", note="may be repeated; --json prints the matrix")] = Field(
        (),
        description="with `unseen`: score the prediction of this field of labels, or covariate, by accuracy, F1 and "
        "the confusion matrix",
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed by which the tokens of unseen documents are halved")


class CoherenceOptions(Options):
    """Documents in which co-occurrences of the topics' words are counted."""

    coherence: Annotated[Sources, Value("CORPUS|TEXTS", text=True)] = Field(
        None,
        description="documents in which co-occurrences of the topics' words are counted, such as the training corpus",
    )


class MetricOptions(Options):
    """Metrics of topics, and the documents that they are computed from."""

    heading = "metrics of topics"
    metrics: Annotated[Names, Value("NAME,...", note="see the list below")] = Field(
        (),
        description="names of metrics, or all, for all that the other options allow. Coherences are counted in the "
        "documents of `coherence`: texts for c_v, c_npmi and c_uci, for the others by default the training corpus",
    )
    label_field: Annotated[str | None, Value("NAME")] = Field(
        None,
        description="field of labels that purity, nmi, ari and classifier-accuracy compare topics with, in the "
        "`unseen` documents or else in the training documents (default: the only field of labels)",
    )
    top_words: Annotated[int | None, Value("N")] = Field(
        None,
        ge=2,
        description="number of most probable words of each topic (default: 10; 25 for diversity, 15 for "
        "strict-diversity)",
    )
    sample_documents: Annotated[int, Value("N", unit="documents")] = Field(
        200,
        ge=1,
        description="left-to-right and annealed-importance score at most this number of `unseen` documents, drawn at "
        "random, because their time grows with the square of a document's length, or with its length times 3000",
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
        description="number of the restart or sample whose proportions are written (default: means over the members, "
        "or the first restart or last sample if topics are not matched)",
    )


class ShareOptions(Options):
    """Errors of topic shares and effects."""

    heading = "estimates"
    cluster: Annotated[str | None, Value("FIELD")] = Field(
        None,
        description="field whose values are clusters, such as the speech that paragraphs are from: standard errors "
        "account for the similarity of documents in a cluster",
    )
    level: Annotated[float, Value("F", expected="a share between 0 and 1")] = Field(
        0.95, gt=0, lt=1, description="probability of the intervals"
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed of permutations and of the documents' posteriors")


class EffectOptions(ShareOptions):
    """Estimates of the effects of covariates, and their errors."""

    at: Annotated[Texts, Value("FIELD[=VALUE,...]", note="may be repeated")] = Field(
        (),
        description="predict the mean proportions with a field set to the given values in all documents; without "
        "values, to each level or to 25 points of a curve. Several fields are set in all combinations",
    )
    contrast: Annotated[Texts, Value("FIELD[=A,B]", note="may be repeated")] = Field(
        (),
        description="difference between the predictions with a field set to A and to B in all documents; without "
        "values, each level minus the most frequent one, or the largest number minus the smallest. Can be combined "
        "with `at`",
    )
    link: Literal["identity", "logit"] = Field(
        "identity",
        description="identity: effects are differences of shares; logit: differences of log odds (fractional logit)",
    )
    errors: Literal["robust", "classical"] = Field(
        "robust",
        description="standard errors without `cluster`: robust (HC1), or classical, which assumes equal variances",
    )
    permutations: Annotated[int, Value("N")] = Field(
        0,
        ge=0,
        le=MAX_PERMUTATIONS,
        description="check: permute a field N times, over whole clusters if there are any, and report how often "
        "coefficients look significant; about 5% should",
    )
    permute: Annotated[str | None, Value("FIELD")] = Field(
        None, description="field that is permuted (default: the first of the formula)"
    )


class PosteriorOptions(Options):
    """Source of the documents' proportions."""

    posteriors: Literal["sampled", "fit"] = Field(
        "sampled",
        description="sampled: means and variances of the documents' proportions are sampled with the topics fixed and "
        "a prior that follows the formula, for families with Dirichlet proportions; fit: the proportions of "
        "the fit, taken as known, which is faster and gives intervals that are too narrow",
    )
    store: bool = Field(
        False,
        description="store the sampled posteriors with the model (8 bytes per document and topic), where later calls "
        "with the same formula and seed find them: other contrasts and curves then take seconds",
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="present location of the training corpus, if it was moved"
    )


class GroupWordOptions(Options):
    """Groups whose words are compared."""

    contrast: Annotated[Names | None, Value("A,B")] = Field(
        None, description="compare the group A with the group B (default: each group with all other documents)"
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="present location of the training corpus, if it was moved"
    )


class WordChainOptions(Options):
    """Strength of the chain of a topic's words over time."""

    strength: Annotated[float | None, Value("TOKENS", unit="tokens")] = Field(
        None,
        gt=0,
        allow_inf_nan=True,
        description="strength, in tokens, by which each period's words are smoothed towards the previous period's; a "
        "large strength keeps the words constant (default: for each topic, the value from 1,000 to 1,000,000 that "
        "best predicts the last periods)",
    )
    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="present location of the training corpus, if it was moved"
    )
