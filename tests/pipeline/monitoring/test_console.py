"""What a user sees of a fit: a live view in a terminal, plain lines elsewhere, and nothing if quiet."""

import datetime
import io
import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import fit
from collapsium.pipeline.cli.command import in_flags
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.formatting import quantity, sparkline
from collapsium.pipeline.monitoring import console as progress
from collapsium.pipeline.monitoring.console import RunView, counting, show_compilation
from collapsium.pipeline.monitoring.events import MAX_CURVE_POINTS, Curve, Feed, RunStatus

OPTIONS = {"family": "lda", "topics": 3, "scheduler": "serial"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def iteration(number, **more):
    return {"event": "iteration", "iteration": number, "elapsed": 0.5 * number, "seconds": {"kernel": 0.5}, **more}


def start(**more):
    sizes = {"documents": 10, "tokens": 200, "words": 20, "shards": 2}
    return {"event": "start", "family": "lda", "iterations": 8, **sizes, **more}


TOLD = [
    {"event": "cluster", "scheduler": "threads", "workers": 2, "dashboard": None},
    start(),
    *(iteration(n, score=-9.0 + n, active=3, moved=[[2, 0.25]], tokens_a_second=2.5e6) for n in (1, 2)),
    iteration(
        3,
        score=-5.0,
        active=3,
        moved=[[2, 0.25]],
        top_words={"2": ["gene\x1b[31m", "dna"]},
        processes=[{"name": "driver", "memory": 5_000_000, "doing": ["sweep"]}],
    ),
]


def test_a_file__gets_plain_lines(small, monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "1")
    stream = io.StringIO()
    view = RunView(stream)
    for event in TOLD:
        view(event)
    view.close()
    assert "\x1b" not in stream.getvalue()
    assert [line.partition(" ")[2] for line in stream.getvalue().splitlines()[:2]] == [
        "threads: 2 at a time",
        "lda: 10 documents, 200 tokens, 20 words, 2 shards",
    ]
    assert "iteration 1/8  0.5 s  score -8.0000  2.5M tokens/s" in stream.getvalue()
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with counting("reading") as tell:
        tell(5)


def test_count_outside_a_terminal__prints_a_line_every_ten_seconds(monkeypatch):
    stream, now = io.StringIO(), [100.0]
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("collapsium.pipeline.monitoring.console.time.monotonic", lambda: now[0])
    with counting("ingesting") as tell:
        now[0] += 60.0
        tell(0)
        now[0] -= 60.0
        for number in range(1, 26):
            now[0] += 1.0
            tell(1000 * number)
    times, texts = zip(*(line.split(" ", 1) for line in stream.getvalue().splitlines()), strict=True)
    assert texts == ("ingesting: 10,000 documents", "ingesting: 20,000 documents")
    assert all(datetime.datetime.fromisoformat(text).tzinfo for text in times)


def lines_of(events, **how):
    stream = io.StringIO()
    view = RunView(stream, **how)
    for event in events:
        view(event)
    view.close()
    return stream.getvalue().splitlines()


def test_notices_on_the_command_line__name_flags():
    notice = {"event": "notice", "iteration": 0, "elapsed": 0.0, "text": "`preset` defaults leaves this line out"}
    assert lines_of([notice])[0].endswith("`preset` defaults leaves this line out")
    assert lines_of([notice], spell=in_flags)[0].endswith("--preset defaults leaves this line out")


def test_each_line__has_its_time():
    before = datetime.datetime.now().astimezone().replace(microsecond=0)
    for line in lines_of(TOLD):
        when = datetime.datetime.fromisoformat(line.partition(" ")[0])
        assert before <= when <= datetime.datetime.now().astimezone()


def test_json_lines__have_time_level_message_and_metrics():
    records = [json.loads(line) for line in lines_of(TOLD, form="json")]
    assert all(datetime.datetime.fromisoformat(record["time"]).tzinfo for record in records)
    assert {record["level"] for record in records} == {"info"}
    cluster, began, first = records[:3]
    assert (cluster["event"], cluster["message"]) == ("cluster", "threads: 2 at a time")
    assert (began["documents"], began["family"]) == (10, "lda")
    assert (first["event"], first["iteration"], first["iterations"], first["score"]) == ("iteration", 1, 8, -8.0)
    assert "seconds" not in first  # everything else stays in the run's events


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_explicit_format__is_used_in_a_terminal_too(form):
    stream = Terminal()
    view = RunView(stream, form=form)
    for event in TOLD:
        view(event)
    view.close()
    assert "\x1b[?25l" not in stream.getvalue()
    assert "iteration 1/8" in stream.getvalue()


def test_iterations_without_a_score__show_the_last_one(monkeypatch):
    monkeypatch.setattr(progress, "ITERATION_LINE_SECONDS", 0.0)
    events = [start(), iteration(1, change=0.5), iteration(2, score=-7.25), iteration(3), iteration(4, score=-7.0)]
    shown = [line for line in lines_of(events) if "iteration" in line]
    assert "score" not in shown[0]
    assert "score -7.2500  " in shown[1]
    assert "score -7.2500 (iteration 2)" in shown[2]
    assert "score -7.0000  " in shown[3]
    records = [json.loads(line) for line in lines_of(events, form="json")][1:]
    assert [(record.get("score"), record.get("score_iteration")) for record in records[1:3]] == [(-7.25, 2), (-7.25, 2)]


def test_members__show_their_last_scores(monkeypatch):
    monkeypatch.setattr(progress, "ITERATION_LINE_SECONDS", 0.0)
    events = [start(restarts=2), *(iteration(2, member=m, score=-7.0 - m) for m in (0, 1)), iteration(3, member=1)]
    assert "score -8.0000 (iteration 2)" in lines_of(events)[-1]


def test_the_address_of_the_page__is_next_to_the_dashboards():
    event = {"event": "cluster", "scheduler": "local", "workers": 2, "dashboard": "http://127.0.0.1:8787/status"}
    assert "progress at http://127.0.0.1:8787/collapsium, " in lines_of([event])[0]
    assert json.loads(lines_of([event], form="json")[0])["page"] == "http://127.0.0.1:8787/collapsium"
    behind = {**event, "dashboard": "https://hub/user/a/proxy/8787/status"}
    assert "https://hub/user/a/proxy/8787/collapsium" in lines_of([behind])[0]


def test_errors__are_log_lines_if_a_format_is_given(small, tmp_path, capsys):
    words = ["fit", str(small[0]), str(tmp_path / "run"), "--family", "lda", "--log-format"]
    assert main([*words, "json"]) == 2
    record = json.loads(capsys.readouterr().err)
    assert (record["level"], record["message"]) == ("error", "--topics is required: number of topics K")
    assert main([*words, "text"]) == 2
    assert re.match(r"\d{4}-\d\d-\d\dT\S+ collapsium: error: --topics is required", capsys.readouterr().err)


def test_a_dumb_terminal__gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    view = RunView(stream)
    for event in TOLD:
        view(event)
    view.close()
    assert "\x1b" not in stream.getvalue()
    assert "iteration 1/8" in stream.getvalue()


@pytest.mark.parametrize("width", ["100", "40"])
@pytest.mark.parametrize("colours", [True, False])
def test_the_live_view__leaves_the_terminal_clean(monkeypatch, width, colours):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", width)
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    view = RunView(stream)
    for event in TOLD:
        view(event)
    view.close()
    view.close()
    text = stream.getvalue()
    assert "3/8" in text
    assert "-5.0000" in text
    assert "\x1b[31m" not in text  # words are untrusted
    assert "gene" in text
    frame = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.rpartition("\x1b[?25l")[2]).splitlines()
    assert max(map(len, frame)) <= int(width)  # texts that do not fit are truncated
    assert "driver" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is visible again
    # rich caches the codes of the first terminal that it drew on
    assert bool(re.search(r"\x1b\[(?:38;5|9\d)", text)) == colours


def test_vectors__have_values_and_columns():
    stream = io.StringIO()
    view = RunView(stream)
    view(start(holds="vectors", family="hca"))
    view(iteration(1, tokens_a_second=1000.0))
    assert "hca: 10 vectors, 200 values, 20 columns, 2 shards" in stream.getvalue()
    assert "1k values/s" in stream.getvalue()


def test_events_that_arrive_late__are_summarised():
    stream = io.StringIO()
    view = RunView(stream, behind=True)
    for event in TOLD:
        view(event)
    assert "iteration" not in stream.getvalue()
    view.pause()
    view.pause()
    assert stream.getvalue().count("iteration 3/8") == 1
    view({"event": "end", "iteration": 8, "elapsed": 4.0, "reason": "iterations"})
    assert stream.getvalue().splitlines()[-1].partition(" ")[2] == "ended after 8 iterations, 4.0 s (iterations)"


def test_the_status_of_a_run__has_its_documents_tokens_and_iterations(small, tmp_path):
    events = []
    fit(small[0], tmp_path / "run", iterations=3, sinks=[events.append], **OPTIONS)
    status = RunStatus()
    for event in events:
        status.add(event)
    assert status.start["holds"] == "documents"
    assert (status.fit.iteration, status.planned, status.ended) == (3, 3, "iterations")
    assert status.fit.left(3) is None
    tokens = [event["tokens"] for event in events if event["event"] == "iteration"]
    assert set(tokens) == {status.start["tokens"]}


def test_remaining_time__follows_the_recent_pace():
    status = RunStatus()
    for event in (start(), *(iteration(n) for n in (1, 2, 3))):
        status.add(event)
    assert status.fit.left(8) == pytest.approx(2.5)
    status.add({**iteration(2), "elapsed": 9.0})  # the run returned to a checkpoint
    assert status.fit.left(8) == pytest.approx(6 * 8.5)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3000))
def test_curves__keep_the_latest_points_and_stay_small(gaps):
    curve, at = Curve(), 0
    for gap in gaps:
        at += gap
        curve.add(at, -at)
    assert curve.points[-1] == (at, -at)
    assert curve.last == -at
    assert len(curve.points) <= MAX_CURVE_POINTS
    assert curve.points == sorted(set(curve.points))
    curve.add(3, 0.0)
    assert all(iteration <= 3 for iteration, _ in curve.points)


@given(st.lists(st.floats(-1e9, 1e9), max_size=50), st.integers(0, 20))
def test_sparklines__have_the_requested_width_and_the_full_range(values, width):
    text = sparkline(values, width)
    assert len(text) == min(width, len(values))
    if len(values) <= width and len(set(values)) > 1:
        assert {"▁", "█"} <= set(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (950, "950"), (12345, "12.3k"), (999_950, "1M"), (4.5e6, "4.5M"), (2e9, "2G")]
)
def test_quantities__have_three_digits(number, text):
    assert quantity(number) == text


def test_feeds__omit_iterations_but_keep_sums(monkeypatch):
    clock, sent = [10.0], []
    monkeypatch.setattr("collapsium.pipeline.monitoring.events.time.monotonic", lambda: clock[0])
    feed = Feed(sent.append, "run", lambda: [iteration(1), {"event": "start"}])
    feed(start())
    assert [message["event"]["event"] for message in sent] == ["start", "iteration"]  # earlier messages come after
    for number in range(2, 12):
        clock[0] += 0.1
        feed(iteration(number, sweeps={"shards": 2, "total": 0.25}))
    feed({"event": "end", "reason": "iterations"})
    sent_iterations = [message["event"]["iteration"] for message in sent if message["event"]["event"] == "iteration"]
    assert sent_iterations[-1] == 11
    assert len(sent_iterations) < 8
    assert sent[-1]["totals"]["kernel"] == pytest.approx(5.0)
    assert sent[-1]["totals"]["sweeps"] == 20


@given(st.integers(0, 400), st.integers(1, 30), st.integers(1, 60))
def test_earlier_events__are_thinned_except_for_scores(count, every, points):
    events = [iteration(number, **({"score": -6.0} if number % every == 0 else {})) for number in range(1, count + 1)]
    sent = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collapsium.pipeline.monitoring.events.POINTS", points)
        Feed(sent.append, "run", lambda: events)(start())
    found = [message["event"] for message in sent[1:]]
    numbers = [record["iteration"] for record in found]
    assert numbers == sorted(set(numbers))
    assert len(found) <= 2 * points + 2
    assert numbers[-1:] == ([count] if count else [])
    assert points == 1 or numbers[:1] == ([1] if count else [])
    scored = [record["iteration"] for record in found if "score" in record]
    if count // every:
        assert scored[-1] == count // every * every
        assert len(scored) >= min(count // every, points / 2)


def test_a_message_that_the_feed_could_not_send__can_be_reported():
    """The sender reports a lost message to all sinks, including the feed itself."""
    asked = []

    def lost(message):
        asked.append(message["event"]["event"])
        feed({"event": "notice", "iteration": 0, "elapsed": 0.0, "text": "lost"})

    feed = Feed(lost, "run", list)
    feed({"event": "start", "iteration": 0, "elapsed": 0.0})
    feed({"event": "end", "iteration": 0, "elapsed": 0.0})
    assert asked == ["start", "end"]


@pytest.mark.parametrize("form", [None, "text", "json"])
def test_lines_of_compilation__match_the_log(monkeypatch, form):
    stream, log = io.StringIO(), logging.getLogger("collapsium.compiling")
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(log, "handlers", [])
    show_compilation(form)
    for compiled in (0, 1, 2):
        log.info("compiling: %d of 2", compiled, extra={"compiled": compiled, "total": 2})
    lines = stream.getvalue().splitlines()
    if form == "json":
        assert [(record["message"], record["compiled"], record["kernels"]) for record in map(json.loads, lines)] == [
            ("compiling: 0 of 2", 0, 2),
            ("compiling: 2 of 2", 2, 2),
        ]
    else:
        times, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
        assert texts == ("compiling: 0 of 2", "compiling: 2 of 2")
        assert all(datetime.datetime.fromisoformat(text).tzinfo for text in times)
    show_compilation(form, quiet=True)
    log.info("compiling: 0 of 3", extra={"compiled": 0, "total": 3})
    assert stream.getvalue().splitlines() == lines
