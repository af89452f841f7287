"""Untrusted records are refused quickly in one line."""

import contextlib
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.errors import DamagedError
from collapsium.storage.io.encodings import parse_toml
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import DIGEST, canonical, dump, numbers_of_names, parse_json
from collapsium.storage.runs.checkpoint import Checkpoints
from collapsium.storage.runs.run import Run, parse_event
from collapsium.workers.families.networks.dirichlet_network import MAX_KINDS, Vectors, check_network, read_network
from tests.chaos.records import MISSING, VALUES, encoded, field_paths, with_value
from tests.records import RUN, START

NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\n}é ", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("asz\n}é ", max_size=4) | st.just(DIGEST), JSON, max_size=5))
def test_records__are_indented_json_with_sorted_keys_and_their_digest(record):
    def text(value):
        return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()

    assert canonical(record) == text(record)
    assert dump(record) == text({**record, DIGEST: hashlib.sha256(text(record)).hexdigest()})


@pytest.mark.parametrize("text", ["1e999", "NaN", "-Infinity", "1" * 30, "1" * 5000, "[" * 100_000, '"\\', "\udc80"])
def test_json_numbers_beyond_64_bits_and_invalid_numbers__are_refused(text):
    with pytest.raises(DamagedError, match="x: expected"):
        parse_json(text.encode("utf-8", "surrogatepass"), "x")


@pytest.mark.parametrize("field", ["restarts", "best_member", "samples"])
def test_a_run_with_ten_million_members__is_refused(tmp_path, field):
    limits = {**RUN["limits"], **({field: 10**7} if field == "samples" else {})}
    record = {**RUN, "limits": limits, **({} if field == "samples" else {field: 10**7})}
    Folder(tmp_path).write("run.json", dump({"format": "collapsium-run", "version": 2, **record}))
    with pytest.raises(DamagedError, match=f"field '.*{field}'"):
        Run(tmp_path).record()


def test_a_run_record__is_read_or_refused_for_any_value_of_a_field(tmp_path):
    folder = Folder(tmp_path)
    for path in field_paths(RUN):
        for value in (MISSING, *VALUES):
            record = {"format": "collapsium-run", "version": 2, **with_value(RUN, path, value)}
            folder.write("run.json", encoded(record))
            with contextlib.suppress(DamagedError):
                assert Run(tmp_path).record()["family"] is not None


def test_events_without_their_fields__are_refused():
    for name in ("family", "documents", "shards"):
        event = {key: value for key, value in START.items() if key != name}
        with pytest.raises(DamagedError, match=f"expected the field '{name}'"):
            parse_event(json.dumps(event).encode(), "x", "line 1")
    with pytest.raises(DamagedError, match="restarts"):
        parse_event(json.dumps({**START, "restarts": 10**7}).encode(), "x", "line 1")


def test_file_names_that_are_not_plain_numbers__are_ignored(tmp_path):
    names = ["00000003", "²", "٣", "3", "20231105", "1" * 30, "00000002.json"]
    assert numbers_of_names(names, 8) == [3, 20231105]
    (tmp_path / "²").mkdir()
    assert Checkpoints(Folder(tmp_path)).candidates() == ([], [])


@pytest.mark.parametrize(
    "text", ["a = " + "1" * 5000, "a = 1" + "0" * 30, "a = " + "[" * 3000, ".".join("a" * 100) + " = 1"]
)
def test_toml_with_large_numbers_or_deep_tables__is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_toml(text)


@pytest.mark.parametrize(
    "text", ["a" + ".a" * 500_000, "[a" + " . 'a'" * 100_000, "x = {a" + '."a"' * 200_000, "a = 1\n" + "b." * 500_000]
)
def test_keys_with_many_parts__are_refused_before_they_are_parsed(text):
    # The parser takes quadratic time in the number of parts: half an hour for a file of this size.
    with pytest.raises(ValueError, match="nested at most 50 deep"):
        parse_toml(text)
    assert parse_toml("a" + ".a" * 40 + " = 1\n[b.'c.d'.\"e\"]\nversion = '1." + "1." * 20 + "'")


def test_networks_with_many_kinds_or_huge_lags__are_refused():
    with pytest.raises(ValueError, match=f"at most {MAX_KINDS} kinds"):
        check_network({f"k{number}": Vectors(over="document") for number in range(10_000)})
    with pytest.raises(ValueError, match="cannot be a parent"):
        check_network({"a": Vectors(over="segment", parents=("a[-99999999999999999999]",))})
    with pytest.raises(ValueError, match="no file"):
        read_network("/dev/zero")
