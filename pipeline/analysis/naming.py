"""Name the topics of a model by a function of the user, and save the names with the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from collapsium.pipeline.analysis.options import NamerOptions
from collapsium.pipeline.analysis.snippets import example_snippets, source_files
from collapsium.pipeline.analysis.topic_shares import SummarySource, documents_summary
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import Topic, topics
from collapsium.pipeline.monitoring.events import load_function
from collapsium.pipeline.options import RankOptions, keywords
from collapsium.storage.errors import AbsentError, CollapsiumError, OptionError
from collapsium.storage.io.folder import Folder, remove_parts
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.members import MEAN, mean_folder
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import LOCK, MEMBERS, MODEL, Run
from collapsium.storage.runs.topic_names import TopicName, clean_name, read_names, write_names
from collapsium.storage.units import Counting, silent

# A function from a topic's words and the texts of its example documents to its name
Namer = Callable[[list[str], list[str]], object]

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
    """Name the topics of a model by a function, and save the names with the model.

    Names that were given by hand or by seeds stay.

    Parameters
    ----------
    run : str or path-like
        Folder of a run that has ended, or of a model; for restarts or samples, the means of their topics are named.
    namer : str or callable
        A function, or its name ``module:function``. It takes a topic's words and the texts of its example documents,
        two lists of strings, and returns the name.
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
    function = load_function(namer, "name") if isinstance(namer, str) else namer
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
                is_named_by_user = topic.id in model.seed_names if before is None else before.by != "namer"
                if not is_named_by_user:
                    named = _named(topic, examples.get(topic.id, []), function, report)
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
    """Hold the lock of a model's run, or of a single model, so that nobody replaces it while it is named."""
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
        raise AbsentError(f"{model.folder.url}: the run has not finished; names are saved with a finished model")
    return model


def _named(
    topic: Topic, documents: list[str], namer: Callable[..., object], report: Callable[[str], object]
) -> TopicName | None:
    """Return the name of a topic; None if the namer fails."""
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
    return TopicName(id=topic.id, name=name, by="namer")


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
        titles: dict[int, list[str]] = {}
        for topic in summary.topics:
            for example in topic.examples:
                document = summary.examples[example.document]
                explained = " ".join(model.vocabulary.words[word] for word in example.words)
                titles.setdefault(topic.id, []).append(f"{document.title or document.id}: {explained}")
        return titles
    words = {topic.id: [word for word, _ in topic.words] for topic in run_topics}
    snippets, notes = example_snippets(run, summary, words, model.vocabulary.words, list(texts))
    for note in notes:
        report(note)
    passages: dict[int, list[str]] = {}
    for (topic_id, _), passage in sorted(snippets.items()):
        passages.setdefault(topic_id, []).append("".join(passage))
    return passages
