"""Texts in memory are read like texts in a file, and further texts need no files to be written or loaded again."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit
from collapsium.pipeline.corpora.new_texts import documents_for
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.io.folder import Folder

TEXTS = [
    "Cats purr; big cats don't sleep.",
    "New bonds rise in New York",
    "the big cats of New York",
    "Stocks and bonds",
]
WORDS = [
    "cats",
    "Cats",
    "New York",
    "new",
    "york",
    "bonds",
    "don't",
    "the",
    "big",
    "Zebra",
    "\u03a3",
    "e\u0301t\u00e9",
    "\n",
    ".",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models whose texts were read with different options."""
    place = tmp_path_factory.mktemp("models")
    ways = {
        "phrases": {"phrases": "count", "phrase_count": 1, "phrase_threshold": -1.0},
        "cut": {"segments": "lines", "min_characters": 3, "max_document_share": 0.6},
        "plain": {},
    }
    frame = pd.DataFrame({"id": list("abcd"), "text": TEXTS})
    return {
        way: fit(frame, place / way, family="lda", topics=3, iterations=2, scheduler="serial", **options)
        for way, options in ways.items()
    }


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["phrases", "cut", "plain"]),
    st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=5),
)
def test_texts_in_memory__are_read_as_from_a_file(models, tmp_path_factory, way, texts):
    path, model = tmp_path_factory.mktemp("new") / "new.jsonl", models[way]
    path.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shares, unknown = model.transform(texts, return_unknown=True)
        np.testing.assert_array_equal(shares, model.transform(path))
        with documents_for(model, path) as read:
            assert unknown.sum() == read.unknown.unknown


def test_unknown_words__are_counted_and_reported_once(models):
    model = Model(models["plain"])
    with pytest.warns(UserWarning, match="3 of 5 tokens") as caught:
        _, unknown = model.transform(["zebra gnu", "the cats", "okapi cats"], return_unknown=True)
    assert len(caught) == 1
    assert unknown.tolist() == [2, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.transform(["zebra"], return_unknown=True)[1].tolist() == [1]
        assert model.transform([], return_unknown=True)[1].tolist() == []


def test_further_texts__are_read_without_access_to_files(models, monkeypatch):
    model = Model(models["phrases"])
    first = model.transform(TEXTS)

    def fail(*_, **__):
        raise AssertionError("a file is read or written")

    for name in ("read", "write", "make"):
        monkeypatch.setattr(Folder, name, fail)
    monkeypatch.setattr("tempfile.TemporaryDirectory", fail)
    np.testing.assert_array_equal(model.transform(TEXTS), first)
    np.testing.assert_array_equal(model.transform([TEXTS[2]]), first[2:3])


def test_frames_with_different_fields__may_follow_one_another(models):
    model = models["plain"]
    expected = model.transform([TEXTS[1]])
    for name in ("body", "text"):
        np.testing.assert_array_equal(model.transform(pd.DataFrame({name: [TEXTS[1]]}), text=name), expected)
    with pytest.raises(InputError, match="the document id 'x' occurs twice"):
        model.transform(pd.DataFrame({"id": ["x", "x"], "text": TEXTS[:2]}), id="id")
    with pytest.raises(OptionError, match="expected texts in memory, found a path"):
        model.transform(models["plain"].folder.path, return_unknown=True)
