"""Score a model, and print how the score is defined.

--heldout: document completion, on held-out tokens of the training documents.
--unseen: new documents, half of whose tokens are fitted and half scored; of a
family of vectors, new vectors, and how much their reconstruction leaves of them.
--unseen OBSERVED --heldout SCORED: new documents of which all tokens of OBSERVED are
fitted and those of SCORED scored, two parts of one corpus as `collapsium split` makes
them: the same tokens for any model, also of what `collapsium flatten` made of both.
With labels, --unseen gives two scores: by halves, and given the labels alone, no word
looked at, as (40) of Kim and Oh (2017); labels that training did not have count as missing.
--given-labels asks for the second of any family: without labels it is the prior's, which
can be compared. --field NAME: how well that label or number is predicted from the words.
--in-document: new documents, each fitted and scored on the same tokens, as papers
on trees of topics do; scores of this kind compare with each other alone.
--coherence: whether the topics' words meet in documents, by themselves or beside a score.
Of restarts or kept samples the mean of their predictions is scored, and each.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from collapsium.pipeline.analysis.options import CoherenceOptions, EvaluateOptions
from collapsium.pipeline.cli.command import Command, Flags, UsageError, argument
from collapsium.pipeline.cli.new_texts import print_notice, with_unknown
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.options import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import plain

if TYPE_CHECKING:
    from collapsium.pipeline.analysis.coherence import Coherence
    from collapsium.pipeline.analysis.evaluate import Evaluation, Reconstruction
    from collapsium.pipeline.analysis.labels.classification import Classification

CLASSES = 20  # of a field, that are printed
EMPTY = ("members", "given_labels", "fields")


def execute(run: Annotated[str, argument("RUN", "a run or a model")], /, flags: Flags) -> None:
    """Print the score, the coherence, or both."""
    from collapsium.pipeline.analysis.coherence import coherence
    from collapsium.pipeline.analysis.evaluate import evaluate
    from collapsium.pipeline.corpora.new_texts import is_corpus

    options, counted_in = flags.of(EvaluateOptions), flags.of(CoherenceOptions).coherence
    _require_documents(options, counted_in)
    where = {**flags.given(SchedulerOptions), "tls": flags.of(CertificateOptions).tls}
    reading = flags.given(ReadingOptions)
    found: dict[str, Any] = {}
    lines: list[str] = []
    if _named(options):
        score = evaluate(run, **flags.given(EvaluateOptions), notice=print_notice, **where, **reading)
        found.update(with_unknown(_told(asdict(score)), getattr(score, "unknown", None)))
        lines += _lines(score)
    if counted_in is not None:
        coherent = coherence(run, counted_in, **where, **({} if is_corpus(counted_in) else reading))
        found["coherence"] = _record(coherent)
        counted = sum(not math.isnan(value) for value in coherent.topic_npmi)
        lines += [f"coherence  {coherent.npmi:.4f} (NPMI), mean of {counted:,} topics"]
        lines += [f"diversity  {coherent.diversity:.4f}", f"counted in {coherent.documents:,} documents"]
        lines += [f"defined as {coherent.definition}"]
    if flags.json:
        print_json(found)
        return
    print("\n".join(lines))


def _named(options: EvaluateOptions) -> int:
    """Return the number of sources of documents to score."""
    return sum(one is not None for one in (options.heldout, options.unseen, options.in_document))


def _require_documents(options: EvaluateOptions, counted_in: str | None) -> None:
    """Refuse a command line without documents, and options of documents that are not named."""
    if not _named(options) and counted_in is None:
        raise UsageError("one of the arguments --heldout --unseen --in-document --coherence is required")
    if options.in_document is not None and _named(options) > 1:
        raise UsageError("argument --in-document: not allowed with argument --heldout or --unseen")
    if not _named(options) and (options.given_labels or options.field):
        raise UsageError("--given-labels and --field take documents that the model has not seen (--unseen)")


def _lines(score: Evaluation | Reconstruction) -> list[str]:
    """Return what is printed of a score."""
    from collapsium.pipeline.analysis.evaluate import Reconstruction

    if isinstance(score, Reconstruction):
        lines = [f"error      {score.reconstruction_error:.4f}, mean of |t - t^|^2"]
        lines += [f"vectors    {score.documents:,}"]
        lines += [f"member     {one.member}: {one.reconstruction_error:.4f}" for one in score.members]
    else:
        lines = [f"score      {score.score:.4f} nats a token", f"perplexity {score.perplexity:.2f}"]
        lines += [f"tokens     {score.tokens:,} in {score.documents:,} documents"]
        lines += [f"member     {one.member}: {one.score:.4f}" for one in score.members]
    lines.append(f"defined as {score.definition}")
    if not isinstance(score, Reconstruction) and score.unknown is not None:
        lines.append(f"unknown    {score.unknown.text()}")
    if isinstance(score, Reconstruction):
        return lines
    given = score.given_labels
    if given is not None:
        lines += [f"score      {given.score:.4f} nats a token, given labels", f"perplexity {given.perplexity:.2f}"]
        lines += [f"tokens     {given.tokens:,} in {given.documents:,} documents, {given.labelled:,} with known labels"]
        lines += [f"unknown    {given.unknown:,} labels that training did not have"] if given.unknown else []
        lines += [f"member     {one.member}: {one.score:.4f}" for one in given.members]
        lines.append(f"defined as {given.definition}")
    return [*lines, *(line for one in score.fields for line in _classified(one))]


def _classified(found: Classification) -> list[str]:
    """Return what is printed of a field's classification: the values of most documents, and how all are found."""
    single = f", {found.single:,} with one value" if found.single < found.documents else ""
    lines = [f"{plain(found.field)}: predicted in {found.documents:,} documents{single}"]
    lines.append(f"accuracy   {found.accuracy:.4f}")
    if found.macro_f1 is not None:
        lines += [f"macro F1   {found.macro_f1:.4f}", f"micro F1   {found.micro_f1:.4f}"]
        lines.append(f"{'precision':>10} {'recall':>7} {'F1':>7} {'documents':>9}  {plain(found.field)}")
    for one in sorted(found.classes, key=lambda one: -one.support)[:CLASSES]:
        value = plain(one.value) if isinstance(one.value, str) else f"{one.value:g}"
        lines.append(f"{one.precision:10.4f} {one.recall:7.4f} {one.f1:7.4f} {one.support:9,}  {value}")
    left = len(found.classes) - CLASSES
    lines += [f"and {left:,} more, which --json has"] if left > 0 else []
    return [*lines, f"defined as {found.definition}"]


def _told(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what there is none of."""
    given = found.get("given_labels")
    if given:
        found["given_labels"] = _told(given)
    return {name: value for name, value in found.items() if name not in EMPTY or value}


def _record(found: Coherence) -> dict[str, Any]:
    """Return what JSON can hold: null for topics that are left out."""
    each = zip(found.topics.tolist(), found.topic_npmi.tolist(), strict=True)
    topics = [{"id": number, "npmi": None if math.isnan(value) else value} for number, value in each]
    return {
        "npmi": found.npmi,
        "diversity": found.diversity,
        "topics": topics,
        "documents": found.documents,
        "definition": found.definition,
    }


COMMAND = Command(
    execute, (EvaluateOptions, CoherenceOptions, ReadingOptions, SchedulerOptions, CertificateOptions, JsonOptions)
)
