"""Files of proportions: all layouts, and faults that are reported with column and row."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.storage.errors import AbsentError, InputError
from collapsium.storage.readers.proportions_file import digest_of_file, read_proportions

THETA = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0], [0.5, 0.25, 0.25]])
MOST_ROW_GROUPS = 40  # rows of one file, each of which takes milliseconds to write and to read


def written(place, columns, **how):
    path = place / "theta.parquet"
    pq.write_table(pa.table(columns), path, **how)
    return str(path)


def dense(proportions):
    theta = np.zeros((proportions.documents, proportions.width))
    theta[np.repeat(np.arange(len(theta)), np.diff(proportions.offsets)), proportions.topics] = proportions.shares
    return theta


def layouts(theta):
    lists = pa.array(theta.tolist(), pa.list_(pa.float64()))
    flat = pa.array(theta.ravel())
    sparse = [[(k, share) for k, share in enumerate(row) if share] for row in theta.tolist()]
    return {
        "topic_N": {f"topic_{k}": theta[:, k] for k in reversed(range(theta.shape[1]))},
        "numbers": {f"share of {k}": theta[:, k].astype(np.float32) for k in range(theta.shape[1])},
        "lists": {"embedding clusters": lists},
        "fixed lists": {"proportions": pa.FixedSizeListArray.from_arrays(flat, theta.shape[1]), "path": lists},
        "sparse": {
            "topics": pa.array([[k for k, _ in row] for row in sparse], pa.list_(pa.int32())),
            "proportions": pa.array([[share for _, share in row] for row in sparse], pa.list_(pa.float32())),
        },
    }


@pytest.mark.parametrize("layout", list(layouts(THETA)))
@pytest.mark.parametrize("ids", [None, ["a", "b", "c"], [7, 3, 5]], ids=["order", "texts", "numbers"])
def test_all_layouts__give_the_same_proportions(tmp_path, layout, ids):
    columns = {**({} if ids is None else {"id": ids}), **layouts(THETA)[layout]}
    file = read_proportions(written(tmp_path, columns))
    np.testing.assert_allclose(dense(file.proportions), THETA, rtol=1e-6)
    assert (file.ids is None) == (ids is None)
    if ids is not None:
        assert file.places(pa.array([str(ids[2]), "elsewhere", str(ids[0])])).tolist() == [2, -1, 0]


def test_a_folder_of_files__is_read_as_one_file_in_order_of_names(tmp_path):
    (tmp_path / "theta.parquet").mkdir()
    for name, rows, ids in (("part-1", slice(2, 3), ["c"]), ("part-0", slice(0, 2), ["a", "b"])):
        table = pa.table({"id": ids, **layouts(THETA[rows])["topic_N"]})
        pq.write_table(table, tmp_path / f"theta.parquet/{name}.parquet")
    file = read_proportions(str(tmp_path / "theta.parquet"))
    np.testing.assert_allclose(dense(file.proportions), THETA, rtol=1e-6)
    assert file.ids.to_pylist() == ["a", "b", "c"]
    before = digest_of_file(str(tmp_path / "theta.parquet"))
    pq.write_table(
        pa.table({"id": ["a", "d"], **layouts(THETA[:2])["lists"]}), tmp_path / "theta.parquet/part-2.parquet"
    )
    assert digest_of_file(str(tmp_path / "theta.parquet")) != before
    with pytest.raises(InputError, match=r"part-2.parquet: expected the columns of .*part-0.parquet"):
        read_proportions(str(tmp_path / "theta.parquet"))


@settings(max_examples=30)
@given(
    st.integers(1, 2100),
    st.integers(1, 4),
    st.sampled_from(sorted(layouts(THETA))),
    st.integers(1, 1500),
    st.integers(0, 2**32),
)
def test_rows_of_any_number_and_width__are_read_in_order(tmp_path_factory, rows, width, layout, group, seed):
    weights = np.random.default_rng(seed).random((rows, width)) ** 8
    weights[weights < 0.01] = 0.0
    weights[:, 0] += weights.sum(axis=1) == 0.0
    theta = weights / weights.sum(axis=1, keepdims=True)
    place = tmp_path_factory.mktemp("theta")
    group = max(group, rows // MOST_ROW_GROUPS)
    file = read_proportions(written(place, layouts(theta)[layout], row_group_size=group))
    found = dense(file.proportions)
    np.testing.assert_allclose(found, theta[:, : found.shape[1]], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(theta[:, found.shape[1] :], 0.0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)


def test_sparse_rows__may_omit_small_proportions_and_be_empty(tmp_path):
    columns = {"id": ["a", "b"], "topics": [[9, 2], []], "proportions": [[0.6, 0.2], []]}
    proportions = read_proportions(written(tmp_path, columns)).proportions
    assert proportions.width == 10
    assert proportions.known.tolist() == [True, False]
    np.testing.assert_allclose(dense(proportions)[0, [2, 9]], [0.25, 0.75], rtol=1e-6)


def test_omitted_topics__take_their_share_with_them(tmp_path):
    proportions = read_proportions(written(tmp_path, layouts(THETA)["lists"])).proportions
    kept = proportions.in_columns(np.array([0, 1, -1]))
    np.testing.assert_allclose(dense(kept), [[0.25, 0.75], [0.0, 0.0], [2 / 3, 1 / 3]], rtol=1e-6)
    assert kept.known.tolist() == [True, False, True]
    np.testing.assert_allclose(proportions.totals(), THETA.sum(axis=0))


def test_documents_in_another_order__keep_their_rows(tmp_path):
    proportions = read_proportions(written(tmp_path, layouts(THETA)["sparse"])).proportions
    taken = proportions.take(np.array([2, -1, 0, 2]))
    np.testing.assert_allclose(dense(taken), [THETA[2], [0, 0, 0], THETA[0], THETA[2]], rtol=1e-6)


FAULTS = {
    "negative": ({"topic_0": [0.5, -0.5], "topic_1": [0.5, 1.5]}, "column 'topic_0', row 2: .* found -0.5"),
    "missing": ({"topic_0": [0.5, None], "topic_1": [0.5, 1.0]}, "column 'topic_0', row 2: .* found none"),
    "infinite": ({"x": [[0.5, 0.5], [np.inf, 0.0]]}, "column 'x', row 2: .* found inf"),
    "sum": ({"topic_0": [1.0, 0.5], "topic_1": [0.0, 0.2]}, "row 2: expected proportions that add up to 1, .* 0.7"),
    "logits": ({"x": [[3.0, 4.0]]}, "row 1: expected proportions that add up to 1, found a sum of 7; divide each row"),
    "sparse sum": ({"topics": [[0, 1]], "proportions": [[0.9, 0.9]]}, "row 1: .* a sum of 1.8"),
    "widths": ({"x": [[1.0], [0.5, 0.5]]}, "column 'x', row 1: expected 2 proportions, as other rows have, found 1"),
    "no list": ({"x": [[1.0], None]}, "column 'x', row 2: expected a list, found none"),
    "texts": ({"x": [["a"]]}, "column 'x': expected numbers, found string"),
    "lengths": ({"topics": [[0]], "proportions": [[0.5, 0.5]]}, "expected as many topics as proportions in row 1"),
    "topic": ({"topics": [[0, -1]], "proportions": [[0.5, 0.5]]}, "column 'topics', row 1: .* found -1"),
    "topic of a large number": ({"topics": [[0, 1 << 20]], "proportions": [[0.5, 0.5]]}, "row 1: .* found 1.04858e"),
    "topic twice": ({"topics": [[3, 3]], "proportions": [[0.5, 0.5]]}, "the topic 3 occurs twice"),
    "gap": ({"topic_0": [1.0], "topic_2": [0.0]}, "expected a column topic_1, as there is topic_2"),
    "segments": ({"id": ["a"], "segment": [1], "topic_0": [1.0]}, "column 'segment': expected a row for each document"),
    "ids twice": (
        {"id": ["a", "b", "a"], "topic_0": [1.0] * 3},
        "column 'id', row 3: the id 'a' already occurs in row 1",
    ),
    "no id": ({"id": ["a", None], "topic_0": [1.0, 1.0]}, "column 'id', row 2: expected an id, found none"),
    "kind of id": ({"id": [0.5], "topic_0": [1.0]}, "column 'id': expected texts or whole numbers, found double"),
    "nothing": ({"id": ["a"], "title": ["b"]}, "expected `id` and the proportions .* found the columns 'id', 'title'"),
    "no rows": ({"id": pa.array([], pa.string()), "topic_0": pa.array([], pa.float64())}, "of at least one document"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault__is_reported_with_its_column_and_row(tmp_path, fault):
    columns, text = FAULTS[fault]
    path = written(tmp_path, columns)
    with pytest.raises(InputError, match=text) as raised:
        read_proportions(path)
    assert str(raised.value).startswith(path)
    assert "\n" not in str(raised.value)


def test_rows_far_into_the_file__are_numbered_from_its_beginning(tmp_path):
    theta = np.tile([0.5, 0.5], (3000, 1))
    theta[2500] = [0.5, 0.6]
    with pytest.raises(InputError, match="row 2,501: "):
        read_proportions(written(tmp_path, layouts(theta)["topic_N"], row_group_size=700))


def test_a_damaged_or_missing_file__is_reported_in_one_line(tmp_path):
    path = written(tmp_path, layouts(THETA)["lists"])
    data = Path(path).read_bytes()
    for damaged in (data[:-3], data[:40] + b"\0" * 20 + data[60:], b"", b"id,topic_0\na,1\n"):
        (tmp_path / "damaged.parquet").write_bytes(damaged)
        with pytest.raises(InputError, match="expected a Parquet file of proportions"):
            read_proportions(str(tmp_path / "damaged.parquet"))
    with pytest.raises(AbsentError):
        read_proportions(str(tmp_path / "nothing.parquet"))
    assert digest_of_file(path) != digest_of_file(str(tmp_path / "damaged.parquet"))


@pytest.mark.parametrize("read", [read_proportions, digest_of_file])
def test_pipes_and_devices__do_not_block(tmp_path, read):
    os.mkfifo(tmp_path / "pipe.parquet")
    (tmp_path / "folder.parquet").mkdir()
    for path, found in (
        (str(tmp_path / "pipe.parquet"), "a pipe or a device"),
        (f"file://{tmp_path}/pipe.parquet", "a pipe or a device"),
        (str(tmp_path / "folder.parquet"), "a folder"),
        ("/dev/zero", "a pipe or a device"),
    ):
        with pytest.raises(InputError, match=f"expected a file, found {found}"):
            read(path)
