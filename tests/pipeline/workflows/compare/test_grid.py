"""The experiment grid of a comparison, and its options."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import compare
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.workflows.compare_options import (
    CompareOptions,
    cells_of,
    number_of,
    parse_settings,
)
from collapsium.storage.errors import OptionError


def comparison_options(families, **options):
    """Return the options of a comparison of families."""
    return CompareOptions(families=families, **options)


# The grid --------------------------------------------------------------------------------------------------------------


def test_cells__combine_families_with_topics_or_initial_topics():
    options = comparison_options(("lda", "gibbs-hdp"), topics=(2, 5), init_topics=(1, 4))
    cells = cells_of(options, 1)
    assert [(cell.name, cell.topics, cell.options) for cell in cells] == [
        ("lda-2", 2, {"topics": 2}),
        ("lda-5", 5, {"topics": 5}),
        ("gibbs-hdp-from-1", None, {"init_topics": 1}),
        ("gibbs-hdp-from-4", None, {"init_topics": 4}),
    ]
    assert [cell.start for cell in cells] == ["random", "random", "from 1 topic", "from 4 topics"]


def test_cells__have_samples_for_samplers_only():
    options = comparison_options(
        ("lda", "gibbs-lda"), topics=(2,), samples=3, sample_every=2, settings={"lda": {"iterations": 9}}
    )
    variational, sampler = cells_of(options, 1)
    assert variational.limits == {"iterations": 9}
    assert sampler.limits == {"iterations": 200, "samples": 3, "sample_every": 2}
    assert [
        load_family(name).is_sampler for name in ("lda", "hdp", "vb-lda", "gibbs-lda", "gibbs-hdp", "gibbs-ncrp")
    ] == [False] * 3 + [True] * 3


def test_each_value_of_a_varied_option__makes_a_cell():
    vary = parse_settings(["eta=0.1,0.5", "hdsp.scaling=labels,linear", "lda.alpha=0.1/K"], "--vary")
    assert vary == {"*": {"eta": [0.1, 0.5]}, "hdsp": {"scaling": ["labels", "linear"]}, "lda": {"alpha": ["0.1/K"]}}
    cells = cells_of(comparison_options(("hdsp", "lda", "labeled-lda"), topics=(4,), vary=vary), 1)
    names = [f"hdsp-4-eta-{eta}-scaling-{scaling}" for eta in (0.1, 0.5) for scaling in ("labels", "linear")]
    assert [cell.name for cell in cells] == [*names, "lda-4-alpha-0.1_K", "labeled-lda-eta-0.1", "labeled-lda-eta-0.5"]
    assert cells[1].options == {"topics": 4, "eta": 0.1, "scaling": "linear"}
    assert cells[4].options == {"topics": 4, "alpha": 0.025}
    assert [cell.start for cell in cells[3:5]] == ["eta = 0.5, scaling = linear", "alpha = 0.1/K"]
    begun = cells_of(comparison_options(("gibbs-hdp",), init_topics=(2,), vary={"*": {"beta": [1.0]}}), 1)
    assert [(cell.name, cell.start) for cell in begun] == [("gibbs-hdp-from-2-beta-1.0", "from 2 topics, beta = 1.0")]


def test_lists_of_values__are_parsed():
    vary = parse_settings(['labels=["kind","place"],["kind"]', 'hdsp.learn=[],["gamma"]'], "--vary")
    assert vary == {"*": {"labels": [["kind", "place"], ["kind"]]}, "hdsp": {"learn": [[], ["gamma"]]}}
    cells = cells_of(comparison_options(("labeled-lda",), vary={"*": vary["*"]}), 1)
    assert [cell.name for cell in cells] == ["labeled-lda-labels-kind+place", "labeled-lda-labels-kind"]
    assert [cell.start for cell in cells] == ["labels = kind+place", "labels = kind"]


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("eta", "expected OPTION=V,V"),
        ("eta=", "expected OPTION=V,V"),
        (".eta=1", "expected OPTION=V,V"),
        ("eta=1.0,1.0", "expected different values"),
        ("topics=3,4", "use --topics"),
        ("etta=1.0", "no compared family has such an option"),
        ("lda.eta=1.0", "'lda' is not compared"),
        ("hdsp.etta=1.0", "unknown option of family 'hdsp'"),
        ("eta=0.5,-1.0", "--vary hdsp.eta: "),
        ("alpha=0.2,0.3", "--set hdsp.alpha: --vary has several values of it"),
        ("scaling=a/b,a?b", "--vary"),
    ],
)
def test_invalid_values__are_refused(vary, message):
    with pytest.raises(OptionError) as caught:
        cells_of(
            comparison_options(
                ("hdsp",), topics=(4,), settings={"hdsp": {"alpha": 0.1}}, vary=parse_settings([vary], "--vary")
            ),
            1,
        )
    assert message in str(caught.value)


def test_settings__are_parsed_by_family_and_option():
    texts = ["lda.alpha=0.1/K", "vb-lda.document-sweeps=3", "hdp.order=2", 'lda.learn=["beta"]']
    found = parse_settings(texts)
    assert found == {
        "lda": {"alpha": "0.1/K", "learn": ["beta"]},
        "vb-lda": {"document_sweeps": 3},
        "hdp": {"order": 2},
    }
    cells = cells_of(comparison_options(("lda", "vb-lda", "hdp"), topics=(4,), settings=found), 1)
    assert cells[0].options == {"topics": 4, "alpha": 0.025, "learn": ["beta"]}
    assert cells[1].options == {"topics": 4, "document_sweeps": 3}


@given(st.floats(1e-6, 1e6), st.integers(1, 5000))
def test_a_value_over_k__is_divided_by_the_number_of_topics(number, count):
    assert number_of(f"{number!r}/K", count, "lda.alpha") == number / count
    assert number_of(f" {number!r} / K ", count, "lda.alpha") == number / count


@pytest.mark.parametrize(
    "text", ["K", "1/k", "1/K/K", "-1/K", "1/2", "__import__('os')/K", "K/2", "inf/K", "1/K;2", ""]
)
def test_other_expressions__are_never_evaluated(text):
    assert number_of(text, 4, "lda.alpha") is text
    with pytest.raises(OptionError, match=r"^--set lda.alpha: expected"):
        cells_of(comparison_options(("lda",), topics=(4,), settings={"lda": {"alpha": text}}), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ("ldaa",)}, "unknown family 'ldaa' (did you mean 'lda'?)"),
        ({"families": ()}, "families: expected one or more"),
        ({"families": ("lda", "lda")}, "families: lda is named twice"),
        ({"topics": ()}, "topics: expected one or more"),
        ({"topics": (0,)}, "topics: expected a whole number of 1 or more, found 0"),
        ({"init_topics": (1, 1)}, "init_topics: 1 is named twice"),
        ({"restarts": 0}, "restarts: expected a whole number of 1 or more"),
        ({"iterations": 0}, "iterations: expected"),
        ({"samples": 2}, "samples: 2 requires `sample_every`"),
        ({"sample_every": 2}, "sample_every: 2 requires `samples`"),
        ({"samples": 9, "sample_every": 9, "families": ("gibbs-lda",)}, "samples: 9 with `sample_every` 9"),
        ({"init_from": "hdp"}, "init_from: is no longer an option: fit from another run"),
        (
            {"unseen": "other"},
            "unseen: is no longer an option: fit each family, and score it with `collapsium evaluate",
        ),
        (
            {"schedule": "stochastic", "families": ("lda", "gibbs-lda")},
            "schedule: expected batch with family 'gibbs-lda'",
        ),
        ({"passes": 2}, "passes: applies only to `schedule` stochastic"),
        (
            {"peers": ("gensim",)},
            "peers: is no longer an option: other libraries, classifiers and labels are compared by",
        ),
        ({"without": ("kind",)}, "without: is no longer an option: use `vary`"),
        ({"settings": {"gensim": {"iterations": 2}}}, "--set gensim.iterations: 'gensim' is not compared"),
        ({"settings": {"hdp": {"order": 2}}}, "--set hdp.order: 'hdp' is not compared"),
        (
            {"settings": {"lda": {"alhpa": 2}}},
            "--set lda.alhpa: unknown option of family 'lda' (did you mean 'alpha'?)",
        ),
        ({"settings": {"lda": {"topics": 2}}}, "--set lda.topics: is a dimension of the grid; use --topics"),
        ({"settings": {"lda": {"alpha": -1}}}, "--set lda.alpha: expected a value greater than 0, found -1"),
        ({"settings": {"lda": {"iterations": "9"}}}, "--set lda.iterations: expected a whole number"),
        (
            {"families": ("gibbs-hdp",), "settings": {"gibbs-hdp": {"beta": "1/K"}}},
            "--set gibbs-hdp.beta=1/K: this family has no K",
        ),
        ({"seed": 0.5}, "seed: expected a whole number"),
        ({"fraction": 0.1, "heldout": "other"}, "`fraction` cannot be combined with `heldout`"),
        ({"fraction": 0.0}, "fraction: expected a value greater than 0, found 0.0"),
    ],
    ids=str,
)
def test_invalid_options__are_refused_before_anything_is_written(small, tmp_path, options, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        compare(small[0], tmp_path / "out", **{"families": ("lda",), "topics": (2,), "iterations": 2, **options})
    assert not (tmp_path / "out").exists()
