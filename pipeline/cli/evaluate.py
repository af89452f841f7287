"""The command `collapsium evaluate`."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from collapsium import pipeline
from collapsium.pipeline.analysis.metrics.catalogue import listing
from collapsium.pipeline.analysis.options import CoherenceOptions, EvaluateOptions, MetricOptions
from collapsium.pipeline.cli.command import (
    JsonOptions,
    UsageError,
    argument,
    in_flags,
    named_options,
    print_json,
    print_notice,
    with_unknown,
)
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import flag_of

if TYPE_CHECKING:
    from collapsium.pipeline.analysis.label_prediction import Classification

MAX_CLASSES = 20  # Classes of a field that are printed, the ones with most documents
OPTIONAL_KEYS = ("members", "given_labels", "fields", "topics")  # Keys that JSON leaves out if they are empty


def evaluate(
    run: Annotated[str, argument("RUN", "a run or a model")],
    /,
    *,
    options: EvaluateOptions,
    counting_in: CoherenceOptions,
    measuring: MetricOptions,
    reading: ReadingOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
    output: JsonOptions,
) -> None:
    """Score a model on held-out data, and print the definition of the score.

    --heldout CORPUS: document completion, the score of held-out tokens of the
    training documents.

    --unseen CORPUS: new documents. The topic proportions are fitted to half of each
    document's tokens, and the other half is scored. For families of vectors the
    score is the reconstruction error of new vectors.

    --unseen OBSERVED --heldout SCORED: new documents, split beforehand by `collapsium
    split`. Proportions are fitted to OBSERVED, and SCORED is scored. All models are
    then scored on the same tokens, also after `collapsium explode` of both parts.

    --unseen with labels: a second score, given only the labels, without any word of
    the document; Kim and Oh (2017), eq. (40). Labels that did not occur in training
    count as missing. With --given-labels, families without labels print this score
    too, under their prior. --field NAME scores the prediction of a label or covariate
    from the words.

    --coherence CORPUS: coherence (NPMI) and diversity of the topics, alone or together
    with a score.

    --metrics NAMES: the metrics that publications on topic models report, alone or
    together with a score: coherence in windows of texts, diversity, agreement with
    labels, likelihood of documents. Each is printed with its definition and source.

    For restarts or samples, the mean of their predictions is scored, and each member
    as well.
    """
    counted_in, metrics = counting_in.coherence, measuring.metrics
    has_documents = options.heldout is not None or options.unseen is not None
    if not has_documents and counted_in is None and not metrics:
        raise UsageError("one of the arguments --heldout --unseen --coherence --metrics is required")
    if not has_documents and (options.given_labels or options.field):
        raise UsageError("--given-labels and --field require --unseen")
    unused = next((name for name in named_options(measuring) if name != "metrics"), None)
    if unused is not None and not metrics:
        raise UsageError(f"{flag_of(unused)} requires --metrics")
    if "seed" in named_options(options) and not has_documents and not metrics:
        raise UsageError("--seed requires --unseen or --metrics")
    execution = {**named_options(scheduling), "tls": certificates.tls}
    read = named_options(reading)
    record: dict[str, object] = {}
    lines: list[str] = []
    if has_documents:
        score = pipeline.evaluate(run, **named_options(options), notice=print_notice, **execution, **read)
        record.update(with_unknown(_without_empty(asdict(score)), getattr(score, "unknown", None)))
        lines += _lines(score)
    if counted_in is not None and not metrics:
        from collapsium.pipeline.corpora import new_texts

        coherent = pipeline.coherence(
            run, counted_in, **execution, **({} if new_texts.names_corpus(counted_in) else read)
        )
        record["coherence"] = _record(coherent)
        with_npmi = sum(not math.isnan(value) for value in coherent.topic_npmi)
        lines += [f"coherence  {coherent.npmi:.4f} (NPMI), mean of {counted(with_npmi, 'topic')}"]
        lines += [f"diversity  {coherent.diversity:.4f}", f"counted in {counted(coherent.documents, 'document')}"]
        lines += [f"defined as {coherent.definition}"]
    if metrics:
        documents = {name: getattr(options, name) for name in ("heldout", "unseen", "seed")}
        named = {**named_options(measuring, counting_in), **documents, **execution, **read}
        with counting("measuring") as progress:
            measured = pipeline.measure(
                run, **named, notice=lambda line: print_notice(in_flags(line)), progress=progress
            )
        record["metrics"] = {name: _without_empty(asdict(result)) for name, result in measured.items()}
        for result in measured.values():
            lines.append(f"{result.name:19} {result.value:.4f}")
            lines += [f"member     {member.member}: {member.value:.4f}" for member in result.members]
            lines += [f"defined as {result.definition}", f"source     {result.source}"]
    if output.as_json:
        print_json(record)
        return
    print("\n".join(lines))


def _lines(score: pipeline.Evaluation | pipeline.Reconstruction) -> list[str]:
    """Return the lines that are printed of a score."""
    if isinstance(score, pipeline.Reconstruction):
        lines = [f"error      {score.reconstruction_error:.4f}, mean of |t - t^|^2"]
        lines += [f"vectors    {score.documents:,}"]
        lines += [f"member     {member.member}: {member.reconstruction_error:.4f}" for member in score.members]
        return [*lines, f"defined as {score.definition}"]
    lines = [f"score      {score.score:.4f} nats per token", f"perplexity {score.perplexity:.2f}"]
    lines += [f"tokens     {score.tokens:,} in {counted(score.documents, 'document')}"]
    lines += [f"member     {member.member}: {member.score:.4f}" for member in score.members]
    lines.append(f"defined as {score.definition}")
    lines += [] if score.unknown is None else [f"unknown    {score.unknown.text()}"]
    by_labels = score.given_labels
    if by_labels is not None:
        lines += [f"score      {by_labels.score:.4f} nats per token, given labels"]
        lines += [f"perplexity {by_labels.perplexity:.2f}"]
        documents = f"{counted(by_labels.documents, 'document')}, {by_labels.labelled:,} with known labels"
        lines += [f"tokens     {by_labels.tokens:,} in {documents}"]
        lines += [f"unknown    {by_labels.unknown:,} labels that training did not have"] if by_labels.unknown else []
        lines += [f"member     {member.member}: {member.score:.4f}" for member in by_labels.members]
        lines.append(f"defined as {by_labels.definition}")
    return [*lines, *(line for field in score.fields for line in _classification_lines(field))]


def _classification_lines(scores: Classification) -> list[str]:
    """Return the lines that are printed of a field's classification, with the classes of most documents."""
    single = f", {scores.single:,} with one value" if scores.single < scores.documents else ""
    lines = [f"{plain(scores.field)}: predicted in {counted(scores.documents, 'document')}{single}"]
    lines.append(f"accuracy   {scores.accuracy:.4f}")
    if scores.macro_f1 is not None:
        lines += [f"macro F1   {scores.macro_f1:.4f}", f"micro F1   {scores.micro_f1:.4f}"]
        lines.append(f"{'precision':>10} {'recall':>7} {'F1':>7} {'documents':>9}  {plain(scores.field)}")
    for label in sorted(scores.classes, key=lambda label: -label.support)[:MAX_CLASSES]:
        value = plain(label.value) if isinstance(label.value, str) else f"{label.value:g}"
        lines.append(f"{label.precision:10.4f} {label.recall:7.4f} {label.f1:7.4f} {label.support:9,}  {value}")
    rest = len(scores.classes) - MAX_CLASSES
    lines += [f"and {rest:,} more; --json lists all"] if rest > 0 else []
    return [*lines, f"defined as {scores.definition}"]


def _without_empty(record: JsonObject) -> JsonObject:
    """Return a record without optional keys that are empty."""
    if record.get("given_labels"):
        record["given_labels"] = _without_empty(record["given_labels"])
    return {name: value for name, value in record.items() if name not in OPTIONAL_KEYS or value}


def _record(coherence: pipeline.Coherence) -> dict[str, object]:
    """Return a coherence for JSON, with null for topics that are left out."""
    values = zip(coherence.topics.tolist(), coherence.topic_npmi.tolist(), strict=True)
    topics = [{"id": number, "npmi": None if math.isnan(value) else value} for number, value in values]
    means = {"npmi": coherence.npmi, "diversity": coherence.diversity}
    return {**means, "topics": topics, "documents": coherence.documents, "definition": coherence.definition}


EVALUATE_EPILOG = f"""{in_flags(listing())}

examples:
  collapsium evaluate RUN --heldout heldout
  collapsium evaluate RUN --metrics c_v,strict-diversity --coherence texts.jsonl
  collapsium evaluate RUN --unseen new.jsonl --metrics purity,nmi,left-to-right --label-field party"""
