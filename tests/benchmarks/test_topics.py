"""The benchmark of topics runs on small data sets in both formats, and extends its results."""

import json

import numpy as np
import pytest
import scipy.sparse

from tests.benchmarks.topics import main, option, table
from tests.benchmarks.topics_data import read_data_sets

WORDS = [f"w{number}" for number in range(20)]


def write_matrices(folder, *, texts=False):
    """Write a data set in TopMost's format, with two labels that have separate words."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    for name, documents in (("train", 40), ("test", 20)):
        labels = np.arange(documents) % 2
        rows = np.array(
            [
                np.concatenate([generator.poisson(2 - 2 * label, 10), generator.poisson(2 * label, 10)])
                for label in labels
            ]
        )
        scipy.sparse.save_npz(folder / f"{name}_bow.npz", scipy.sparse.csr_matrix(rows))
        (folder / f"{name}_labels.txt").write_text("\n".join(map(str, labels)))
        if texts:
            lines = [
                " ".join(word for word, count in zip(WORDS, row, strict=True) for _ in range(count)) for row in rows
            ]
            (folder / f"{name}_texts.txt").write_text("\n".join(lines))


def write_octis(folder):
    """Write a data set in OCTIS's format."""
    folder.mkdir(parents=True)
    (folder / "vocabulary.txt").write_text("\n".join(WORDS[:4]))
    rows = [
        ("w0 w1 w0 unknown", "train", "a"),
        ("w2 w3 w3", "train", "b"),
        ("w0 w1", "val", "a"),
        ("w3 w2", "test", "b"),
    ]
    (folder / "corpus.tsv").write_text("\n".join("\t".join(row) for row in rows))


def test_data_sets__in_both_formats_are_read(tmp_path):
    write_matrices(tmp_path / "first", texts=True)
    write_octis(tmp_path / "second")
    first, second = read_data_sets(tmp_path)
    assert first.train.counts.shape == (40, 20)
    assert len(first.train.texts) == 40
    assert not first.tests_on_training
    assert second.train.counts.toarray().tolist() == [[2, 1, 0, 0], [0, 0, 1, 2]]
    assert second.test.labels.tolist() == ["b"]
    with pytest.raises(SystemExit, match="expected folders with train_bow"):
        (tmp_path / "empty").mkdir()
        read_data_sets(tmp_path / "empty")


def test_the_benchmark__measures_collapsium_and_other_libraries_and_extends_its_results(tmp_path, capsys):
    write_matrices(tmp_path / "data" / "20NG", texts=True)
    common = [str(tmp_path / "data"), str(tmp_path / "out"), "--topics", "2", "--set", "iterations=20"]
    main([*common, "--seeds", "1", "--set", "beta=2"])
    main([*common, "--seeds", "2", "--set", "beta=2", "--peers", "scikit-learn"])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(result["model"], result["seed"]) for result in results] == [
        ("collapsium", 0), ("collapsium", 1), ("scikit-learn", 0), ("scikit-learn", 1)
    ]  # fmt: skip
    assert all(result["figures"]["purity"] == 1.0 for result in results)
    assert all(set(result["figures"]) >= {"nmi", "strict_diversity", "c_v", "npmi", "accuracy"} for result in results)
    text = (tmp_path / "out" / "table.md").read_text()
    assert "| HiCOT | | 0.626 | 0.583 |" in text
    assert "Vuong et al. (2025)" in text
    assert "purity 1.000" in capsys.readouterr().out
    assert table(results) == text
    with pytest.raises(SystemExit, match="error: .*unknown option 'alhpa'"):
        main([*common, "--name", "other", "--set", "alhpa=0.1"])
    other = [{**result, "options": "alpha = 0.5"} for result in results[:1]]
    assert table([*results, *other]).count("| collapsium |") == 2


def test_options__are_toml_or_texts():
    assert option("alpha=0.1") == ("alpha", 0.1)
    assert option('learn=["alpha"]') == ("learn", ["alpha"])
    assert option("weights=idf") == ("weights", "idf")
    assert option("start-topics=3") == ("init_topics", 3)
