"""Name the topics of a model by a namer, and save the names with the model."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from collapsium.pipeline.analysis.options import NamerOptions, RankOptions
from collapsium.pipeline.analysis.snippets import example_snippets, source_files
from collapsium.pipeline.analysis.topic_shares import SummarySource, documents_summary
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.monitoring.events import load_function
from collapsium.pipeline.options import keywords
from collapsium.storage.errors import AbsentError, CollapsiumError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import digest_of
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.io.transactions import remove_parts
from collapsium.storage.runs.members import MEAN, mean_folder
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import LOCK, MEMBERS, MODEL, Run
from collapsium.storage.runs.summary import SummaryRecord
from collapsium.storage.runs.topic_names import TopicName, clean_name, read_names, write_names
from collapsium.storage.units import Counting, silent

COMMAND = "command:"  # Prefix of namers that are commands

# A function from a topic's words and the texts of its example documents to its name
Namer = Callable[[list[str], list[str]], object]


MAX_COMMAND_SECONDS = 120.0  # Timeout of a call, as language models may answer slowly
# Largest output of the command, which is ended if it prints more, and bytes of its last errors that are kept
MAX_OUTPUT_BYTES = 1 << 16
MAX_ERROR_LETTERS = 200  # Letters of its last line on standard error that a warning quotes


class CommandNamer:
    """A namer that calls a command for each topic.

    The command gets ``{"words": [...], "documents": [...]}`` as JSON on its standard input. The first line of its
    output that is not blank is the name.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)

    def __call__(self, words: list[str], documents: list[str]) -> str:
        """Return the name of a topic."""
        data = json.dumps({"words": words, "documents": documents}, ensure_ascii=False).encode(errors="replace")
        try:
            code, output, errors = _answer(self._words, data)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._words[0]} took more than {MAX_COMMAND_SECONDS:.0f} s") from None
        except OSError as error:
            raise RuntimeError(f"{self._words[0]} could not be run ({error.strerror or error})") from None
        if code:
            lines = errors.decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")[:MAX_ERROR_LETTERS]
            raise RuntimeError(f"{self._words[0]} exited with code {code}{last and f' ({last})'}")
        lines = output.decode(errors="replace").splitlines()
        name = next((line.strip() for line in lines if line.strip()), "")
        if not name:
            raise RuntimeError(f"{self._words[0]} printed nothing")
        return name


def _answer(words: Sequence[str], data: bytes) -> tuple[int, bytes, bytes]:
    """Run a command with some input, and end it and what it has started; return exit code, output and errors."""
    deadline = time.monotonic() + MAX_COMMAND_SECONDS
    with tempfile.TemporaryFile() as given:
        given.write(data)
        given.seek(0)
        pipe = subprocess.PIPE
        # The command is the user's own, and a list, so that no shell is involved.
        with subprocess.Popen(words, stdin=given, stdout=pipe, stderr=pipe, start_new_session=True) as process:  # noqa: S603
            try:
                output, errors = _read_to_the_end(process, words[0], deadline)
                code = process.wait(max(deadline - time.monotonic(), 0.0))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return code, output, errors


def _read_to_the_end(process: subprocess.Popen[bytes], name: str, deadline: float) -> tuple[bytes, bytes]:
    """Return what a process prints, in bounded memory and time."""
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, text in ((process.stdout, output), (process.stderr, errors)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, text)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0.0))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, MAX_COMMAND_SECONDS)
            for key, _ in ready:
                piece = os.read(key.fd, MAX_OUTPUT_BYTES)
                key.data.extend(piece)
                if not piece:
                    selector.unregister(key.fileobj)
            if len(output) > MAX_OUTPUT_BYTES:
                raise RuntimeError(f"{name} printed more than {MAX_OUTPUT_BYTES:,} bytes")
            # The last line of the errors is quoted.
            del errors[:-MAX_OUTPUT_BYTES]
    return bytes(output), bytes(errors)


def load_namer(text: str) -> Namer:
    """Return the namer that a text describes."""
    if not text.startswith(COMMAND):
        return load_function(text, "name")
    try:
        words = shlex.split(text.removeprefix(COMMAND))
    except ValueError as error:
        raise OptionError(f"{text}: {error}", "name") from None
    if not words:
        raise OptionError(f"expected module:function, or command: and a command, found {text!r}", "name")
    return CommandNamer(words)


NAMER_WORDS = 20  # Words of the topic
NAMES_PER_SAVE = 10  # Names after which they are saved, so that an interruption loses few answers of a slow namer


@keywords(options=NamerOptions, ranking=RankOptions)
def name_topics(
    run: str | os.PathLike[str],
    namer: str | Namer,
    *,
    options: NamerOptions,
    ranking: RankOptions,
    notice: Callable[[str], None] | None = None,
    progress: Counting = silent,
) -> dict[int, str]:
    """Name the topics of a model by a function or a command, and save the names with the model.

    Names that were given by hand or by seeds stay. An answer of a command is saved with a digest of the request,
    so that the same command is not called for the same request again.

    Parameters
    ----------
    run : str or path-like
        Folder of a run that has ended, or of a model; of restarts and samples, the means of their topics are named.
    namer : str or callable
        ``module:function``; ``command:`` with a command and its arguments; or a function. A function takes a topic's
        words and the texts of its example documents, two lists of strings, and returns the name. A command gets
        both as JSON on its standard input, and prints the name.
    options : NamerOptions
        Texts that a namer is shown.
    ranking : RankOptions
        Measure that orders a topic's words.
    notice : callable, optional
        Called with a line about each topic that was not named; it keeps its words.
    progress : callable, optional
        Called with the number of topics that have been named so far.

    Returns
    -------
    dict of int to str
        Names of all topics that have one, by permanent id.

    Raises
    ------
    AbsentError
        There is no finished model.
    LockedError
        Another process works on the run.
    OptionError
        The namer cannot be imported.
    """
    function, label = (load_namer(namer), namer) if isinstance(namer, str) else (namer, "")
    if not callable(function):
        raise OptionError(f"expected a function or its name, found {type(function).__name__}", "namer")
    report: Callable[[str], object] = notice or str
    with _held(run) as (model, folder):
        names = read_names(folder, model.record)
        run_topics = topics(run, NAMER_WORDS, **dict(ranking))
        with source_files(run, options.texts) as sources:
            examples = _examples(run, model, run_topics, sources, report)
        unsaved = 0
        try:
            for number, topic in enumerate(run_topics, start=1):
                before = names.get(topic.id)
                by_others = topic.id in model.seed_names if before is None else before.by != "namer"
                if not by_others:
                    named = _named(topic, examples.get(topic.id, []), function, label, before, report)
                    if named is not None and named != before:
                        names[topic.id] = named
                        unsaved += 1
                if unsaved == NAMES_PER_SAVE:
                    write_names(folder, model.record, names.values())
                    unsaved = 0
                progress(number)
        finally:
            # Answers so far are kept if the command is interrupted.
            if unsaved:
                write_names(folder, model.record, names.values())
    return dict(sorted(Model(run).topic_names.items()))


@contextmanager
def _held(run: str | os.PathLike[str]) -> Iterator[tuple[Model, Folder]]:
    """Hold the lock of a model's run, or of a model by itself, so that it stays the one that is named."""
    folder = _finished(run).folder
    place, _, name = folder.address.rpartition("/")
    with ExitStack() as stack:
        above = place if name == MODEL else place.removesuffix(f"/{MEMBERS}")
        if name in (MODEL, MEAN) and (owner := Run(above)).exists():
            stack.enter_context(owner.held())
            owner.clean()
            folder = owner.model if name == MODEL else mean_folder(owner)
        else:
            folder = folder.fenced(stack.enter_context(RunLock(folder / LOCK)))
            remove_parts(folder)
        yield _finished(run), folder


def _finished(run: str | os.PathLike[str]) -> Model:
    """Return the model of a run that has ended, or the model at a folder."""
    model = Model(run)
    if not model.folder.exists(MODEL_RECORD):
        raise AbsentError(f"{model.folder.url}: the run is not at its end; names are saved with a finished model")
    return model


def _named(
    topic: Topic,
    documents: list[str],
    namer: Namer,
    label: str,
    before: TopicName | None,
    report: Callable[[str], object],
) -> TopicName | None:
    """Return the name of a topic; None if the namer fails."""
    request = ""
    if label.startswith(COMMAND):
        request = digest_of({"namer": label, "words": topic.names, "documents": documents})
        if before is not None and before.request == request:
            return before
    try:
        answer = namer(list(topic.names), list(documents))
        if not isinstance(answer, str):
            raise TypeError(f"expected a string, found {type(answer).__name__}")
        name = clean_name(answer.strip().strip("\"'"))
        if not name:
            raise ValueError("the name is empty")
    # A function of the user may raise anything; its topic keeps its words.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        report(f"topic {topic.id} was not named and keeps its words: {reason}")
        return None
    return TopicName(id=topic.id, name=name, by="namer", request=request)


def _examples(
    run: str | os.PathLike[str],
    model: Model,
    run_topics: Sequence[Topic],
    texts: Sequence[str] | None,
    report: Callable[[str], object],
) -> dict[int, list[str]]:
    """Return the texts of each topic's example documents: titles with the topic's words in them, or passages."""
    notes: list[str] = []
    try:
        summary = documents_summary(model, None, SummarySource(), notes)
    except CollapsiumError as error:
        summary, notes = None, [str(error)]
    if summary is None:
        if texts is not None:
            raise AbsentError(f"{model.folder.url}: the model has no summary of its documents, to find them in `texts`")
        for note in notes:
            report(note)
        return {}
    if texts is None:
        return _titles(summary, model.vocabulary.words)
    words = {topic.id: [word for word, _ in topic.words] for topic in run_topics}
    snippets, notes = example_snippets(run, summary, words, model.vocabulary.words, list(texts))
    for note in notes:
        report(note)
    passages: dict[int, list[str]] = {}
    for (topic_id, _), passage in sorted(snippets.items()):
        passages.setdefault(topic_id, []).append("".join(passage))
    return passages


def _titles(summary: SummaryRecord, vocabulary: Sequence[str]) -> dict[int, list[str]]:
    """Return the titles of each topic's example documents, or ids, with the words that the topic explains."""
    texts: dict[int, list[str]] = {}
    for topic in summary.topics:
        for example in topic.examples:
            document = summary.examples[example.document]
            words = " ".join(vocabulary[word] for word in example.words)
            texts.setdefault(topic.id, []).append(f"{document.title or document.id}: {words}")
    return texts
