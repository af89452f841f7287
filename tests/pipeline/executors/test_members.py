"""Workers that join and leave: which of them get shards, and which versions are refused."""

import pytest
from distributed.versions import get_versions
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.executors.dask_client import Members, require_release, require_same_versions
from collapsium.pipeline.executors.liveness import WorkerSign
from collapsium.storage.errors import MismatchError

OWN = {"python": "3.11.7.final.0", "numpy": "2.4.6", "scipy": "1.17.1", "numba": "0.68.1", "collapsium": "0.1.0"}


def sign(**fields):
    return WorkerSign(0.5, 1.0, False, (), **fields)


@pytest.fixture
def members():
    return Members(lambda: "token", print)


def test_a_worker__gets_shards_once_it_is_ready(members):
    assert members.take({"a": sign(), "b": sign()}) == ["a", "b"]
    assert members.addresses == ()
    assert members.take({"a": sign(threads=2, memory=3e9), "b": sign()}, ["a"]) == ["b"]
    assert (members.addresses, members.threads, members.memory) == (("a",), 2, 3e9)


def test_a_worker_that_hands_over_its_data__gets_no_shards(members):
    members.take({"a": sign(), "b": sign()}, ["a", "b"])
    assert members.take({"a": sign(leaving=True), "b": sign()}) == []
    assert members.addresses == ("b",)


def test_a_worker_that_replaces_another__takes_its_place(members):
    members.take({name: sign() for name in "bcd"}, "bcd")
    members.take({name: sign() for name in "acd"}, "a")
    assert members.addresses == ("a", "c", "d")


NAMES = st.sets(st.sampled_from("abcdefgh"))


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=6))
def test_members__are_the_workers_that_are_ready_and_stay(steps):
    members, ready = Members(lambda: "token", print), set()
    for present, leaving, welcomed in steps:
        before = members.addresses
        joining = members.take({name: sign(leaving=name in leaving) for name in present}, sorted(welcomed))
        ready = (ready | welcomed) & (present - leaving)
        assert sorted(members.addresses) == sorted(ready)
        assert joining == sorted(present - leaving - ready)
        staying = [name for name in before if name in ready]
        assert [name for name in members.addresses if name in staying] == staying


def test_equal_versions__are_accepted():
    assert require_same_versions({"tcp://a": OWN, "tcp://b": {**OWN, "dask": "1"}}, OWN) is None
    assert require_release("tcp://s", {"packages": get_versions(packages=["collapsium"])["packages"]}) is None


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ({"numpy": "1.26.4"}, "worker tcp://b has numpy 1.26.4, the driver 2.4.6; install the same"),
        ({"scipy": "1.13.0"}, "worker tcp://b has scipy 1.13.0, the driver 1.17.1; install the same"),
        ({"python": "3.12.1.final.0"}, "worker tcp://b has Python 3.12.1, the driver 3.11.7; install the same"),
        ({"collapsium": None}, "worker tcp://b has no collapsium, the driver 0.1.0; install the same"),
        (
            {"numba": "0.61.0", "collapsium": "0.2"},
            "has numba 0.61.0, the driver 0.68.1 and collapsium 0.2, the driver 0",
        ),
    ],
)
def test_a_worker_with_other_versions__is_refused_in_one_line(versions, text):
    with pytest.raises(MismatchError) as caught:
        require_same_versions({"tcp://a": OWN, "tcp://b": {**OWN, **versions}}, OWN)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_workers_with_other_versions__are_counted():
    older = {**OWN, "numpy": "1.0"}
    with pytest.raises(MismatchError, match=r"worker a has numpy 1.0, the driver 2.4.6 \(and 2 more workers differ\);"):
        require_same_versions({"a": older, "b": older, "c": older}, OWN)


def test_a_scheduler_without_this_release__is_refused():
    with pytest.raises(MismatchError, match="the scheduler tcp://s has no collapsium, the driver"):
        require_release("tcp://s", {"packages": {"collapsium": None}})
