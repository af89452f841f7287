"""Following a run by its events: files that grow, are truncated or replaced, and runs that begin, resume, end or die."""

import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import fit, resume
from collapsium.pipeline.cli import watch as following
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.cli.watch import Following, Tail, follow, so_far
from collapsium.storage.errors import AbsentError, DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import EVENTS, Run
from tests.records import RUN, START
from tests.waiting import PATIENCE

OPTIONS = {"family": "lda", "topics": 3, "iterations": 4, "scheduler": "serial"}


class RecordingView(list):
    """A view that records its events."""

    pauses = 0

    def __call__(self, event):
        self.append(event)

    def pause(self):
        self.pauses += 1


def iteration(number):
    return {"event": "iteration", "iteration": number, "elapsed": 0.5 * number, "seconds": {}}


def line(number, more=""):
    return json.dumps({"event": "iteration", "iteration": number, "elapsed": 0.0, "more": more}).encode() + b"\n"


steps = st.one_of(
    st.tuples(st.just("append"), st.binary(max_size=3)),
    st.tuples(st.just("cut"), st.floats(0.0, 1.0)),
    st.tuples(st.just("replace"), st.integers(0, 3)),
    st.tuples(st.just("look"), st.none()),
)


@given(script=st.lists(steps, max_size=20))
def test_tail__reads_exactly_the_final_contents_of_the_file(script):
    folder, number = Folder(f"memory://tail-{time.monotonic_ns()}"), 0
    tail, seen, data = Tail(folder), [], b""

    def look():
        nonlocal seen
        events, again = tail.read()
        seen = events if again else seen + events

    for what, value in script:
        if what == "append":
            number += 1
            data += line(number, value.hex())[: None if len(value) < 3 else 9]  # some lines are incomplete
            if len(value) == 3:
                look()
                data = data[: data.rfind(b"\n") + 1]
        elif what == "cut":
            data = data[: int(value * len(data))]
            data = data[: data.rfind(b"\n") + 1]
        elif what == "replace":
            number += 100
            data = b"".join(line(number + offset) for offset in range(value))
        else:
            look()
        folder.write(EVENTS, data)
    look()
    look()
    assert seen == [json.loads(row) for row in data.splitlines()]


def test_tail__refuses_lines_that_are_not_events(tmp_path):
    folder = Folder(tmp_path)
    folder.write(EVENTS, b"[1]\n")
    with pytest.raises(DamagedError, match="expected an event"):
        Tail(folder).read()


def test_follow__waits_for_a_run_and_follows_it_to_its_end(tmp_path):
    run, lines, views = Run(tmp_path / "run"), [], []

    def view():
        views.append(RecordingView())
        return views[-1]

    def live():
        time.sleep(0.05)
        run.create(RUN)
        with run.lock:
            run.append_event(START)
            for number in (1, 2, 3):
                run.append_event(iteration(number))
            size = run.events_size()
            run.append_event(iteration(4))
            time.sleep(0.1)
            run.truncate_events(size)  # the run returned to a checkpoint
            run.append_event({**iteration(4), "other": True})
            run.append_event({"event": "end", "iteration": 4, "elapsed": 2.0, "reason": "iterations"})

    thread = threading.Thread(target=live)
    thread.start()
    assert follow(str(tmp_path / "run"), view, idle_timeout=PATIENCE, every=0.01, notice=lines.append) == "iterations"
    thread.join()
    assert len(lines) == 1
    assert "there is no run yet" in lines[0]
    assert views[-1] == run.events()
    assert views[-1].pauses


def test_a_run_that_never_begins__is_awaited_until_the_timeout(tmp_path):
    lines = []
    with pytest.raises(AbsentError, match="there is no run, and none has begun for 0 s"):
        follow(str(tmp_path / "nothing"), RecordingView, idle_timeout=0.1, every=0.01, notice=lines.append)
    assert len(lines) == 1
    assert lines[0].endswith("there is no run yet; waiting for it (at most 0 s)")


@pytest.mark.parametrize("url", ["memory://followed", None])
def test_follow__includes_members_of_ensembles(small, tmp_path, url):
    url = url or str(tmp_path / "run")
    fit(small[0], url, restarts=2, **OPTIONS)
    seen = RecordingView()
    assert follow(url, lambda: seen, idle_timeout=PATIENCE, every=0.01) == "iterations"
    events = [(event["member"], event["iteration"]) for event in seen if event["event"] == "iteration"]
    assert sorted(events) == [(member, number) for member in (0, 1) for number in (1, 2, 3, 4)]
    assert seen[-1]["event"] == "end"
    assert "member" not in seen[-1]


def test_follow__gives_up_a_run_that_no_process_works_on(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "OWNER_GRACE_SECONDS", 0.02)
    run, lines = Run(tmp_path / "run"), []
    run.create(RUN)
    run.append_event(iteration(1))
    with pytest.raises(AbsentError, match="no process has worked on it"):
        follow(str(tmp_path / "run"), RecordingView, idle_timeout=0.1, every=0.01, notice=lines.append)
    assert len(lines) == 1
    assert "continue with `resume`" in lines[0]


def test_follow__refuses_a_folder_that_is_not_a_run(small):
    with pytest.raises(AbsentError, match="not a run"):
        follow(small[0], RecordingView, idle_timeout=1.0)


def test_so_far__returns_the_state_of_a_run(small, tmp_path):
    run = Run(tmp_path / "run")
    fit(small[0], tmp_path / "run", **OPTIONS)
    assert so_far(tmp_path / "run")[1] == "ended (iterations)"
    run.truncate_events(run.events_size() - 3)  # its last line is incomplete
    assert so_far(tmp_path / "run")[1] == "not ended, and no process works on it"
    with run.lock:
        assert so_far(tmp_path / "run")[1].startswith("running (process ")
    assert Following(tmp_path / "run").owner() == ""
    with pytest.raises(AbsentError, match="not a run"):
        so_far(tmp_path / "nothing")


def test_so_far__has_the_iterations_of_a_run_that_was_resumed_with_more(small, tmp_path):
    fit(small[0], tmp_path / "run", family="lda", topics=3, iterations=3, scheduler="serial")
    resume(tmp_path / "run", iterations=5, scheduler="serial")
    events, state = so_far(tmp_path / "run")
    assert [event["iterations"] for event in events if event["event"] == "start"] == [5]
    assert state == "ended (iterations)"


def test_watch__prints_plain_lines(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("FORCE_COLOR", "1")
    fit(small[0], tmp_path / "run", heldout=small[1], **OPTIONS)
    assert main(["watch", str(tmp_path / "run"), "--once"]) == 0
    out, _ = capsys.readouterr()
    assert "ended (iterations)" in out
    assert "4/4" in out
    assert main(["watch", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["iteration"], found["state"], found["left"]) == (4, "ended (iterations)", None)
    assert main(["watch", str(tmp_path / "run")]) == 0
    err = capsys.readouterr().err
    assert err.splitlines()[-1].partition(" ")[2].startswith("ended after 4 iterations")
    assert err.splitlines()[-2].partition(" ")[2].startswith("iteration 4/4")
    assert "\x1b" not in out + err
    assert main(["watch", str(tmp_path / "none"), "--once"]) == 1
    assert main(["watch", str(tmp_path / "run"), "--every", "0"]) == 2


def test_look__keeps_the_order_of_a_resumed_run(tmp_path):
    begun, ended = START, {"event": "end", "iteration": 1, "elapsed": 0.5, "reason": "interrupt"}
    events = [begun, iteration(1), ended, begun, iteration(2)]
    (tmp_path / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    seen = Following(tmp_path)
    assert seen.look() == (events, False)
    assert seen.ended == ""
