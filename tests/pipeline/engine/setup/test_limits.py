import contextlib
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collapsium import pipeline
from collapsium.pipeline import fit
from collapsium.pipeline.corpora.options import IngestOptions
from collapsium.pipeline.engine.loop import minibatches
from collapsium.pipeline.engine.setup.limits import Limits, read_config
from collapsium.pipeline.models.registry import (
    changed_options,
    family_names,
    load_family,
    make_options,
    recorded_options,
)
from collapsium.pipeline.options import kinds_of, parse_setting, python_value
from collapsium.storage.errors import AbsentError, InputError, OptionError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import FamilyOptions


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("lda", {}, "`topics` is required: number of topics K"),
        ("lda", {"topics": 0}, "topics: expected a whole number of 1 or more, found 0"),
        ("hdp", {"topics": -3}, "topics"),
        ("hdp", {"topics": 2.5}, "topics"),
        ("lda", {"topics": 2, "alpha": 0}, "alpha: expected a value greater than 0, found 0"),
        ("lda", {"topics": 2, "alpha": float("inf")}, "alpha"),
        ("lda", {"topics": 2, "order": 1}, "order: expected 0 or 2, found 1"),
        (
            "lda",
            {"topics": 2, "responsibilities": "some"},
            "responsibilities: expected active or dense, found 'some'",
        ),
        (
            "hdp",
            {"responsibilities": "active", "order": 2},
            "responsibilities: expected 'dense' with `order` 2; active responsibilities take `order` 0",
        ),
        ("lda", {"topics": 2, "momentum": 1}, "momentum: expected a value less than 1, found 1"),
        (
            "lda",
            {"topics": 2, "inverse_temperature": 0},
            "inverse_temperature: expected a value greater than 0, found 0",
        ),
        ("lda", {"topics": 2, "most_active": 0}, "most_active: expected a whole number of 1 or more, found 0"),
        ("lda", {"topics": 65536}, "topics: expected a whole number of 65,535 or less, found 65536"),
        ("lda", {"topics": True}, "topics: expected a whole number of 1 or more, found True"),
        ("lda", {"topics": 2, "alpha": "0.1"}, "alpha: expected a number, found '0.1'"),
        ("lda", {"topics": 2, "alpa": 1}, "unknown option 'alpa' of family 'lda' (did you mean 'alpha'?)"),
        ("lda", {"topics": 2, "learn": ["alpha", "asymmetric-alpha"]}, "name either alpha or asymmetric-alpha"),
        ("hdp", {"learn": ["delta"]}, "learn"),
        ("hdp", {"learn": ["Gamma"]}, "expected alpha, gamma, pi, beta, tau, found 'Gamma' (did you mean 'gamma'?)"),
        ("dirichlet-network", {"topics": 2, "network": {"a": {}}}, "network: 'a': the key 'over' is required"),
        (None, {}, "family: expected the name of a family, found None"),
        (Path("lda"), {}, "family: expected the name of a family, found PosixPath('lda')"),
        ("Lda", {"topics": 2}, "unknown family 'Lda' (did you mean 'lda'?)"),
        ("ncrp", {"depth": 3, "alpha": [1.0]}, "alpha: expected 3 values, one per level, found 1"),
        ("ncrp", {"max_nodes": 2, "depth": 3}, "max_nodes: expected at least 3, one per level, found 2"),
        ("gibbs-ncrp", {"depth": 3, "eta": [1.0, 2.0]}, "eta: expected 1 value or 3, found 2"),
        ("hca", {"depth": 4, "branching": [2, 2]}, "branching: expected 1 value or 3, found 2"),
        ("hdsp", {"topics": 2, "covariates": "stars"}, "covariates: numbers need `scaling` linear"),
        ("lda", {"topics": 1, "seeds": {"a": ["x"], "b": ["y"]}}, "seeds: expected at most 1 seeded topics"),
        ("lda", {"topics": 1, "seeds": {"a": 3}}, "seeds: topic 'a': words: expected a list of words, found 3"),
        (
            "lda",
            {"topics": 1, "seeds": {"a": {"words": ["x"], "word": 1}}},
            "topic 'a': unknown key 'word' (did you mean 'words'?)",
        ),
        (
            "lda",
            {"topics": 1, "weights": 5},
            "weights: expected idf, log-tf-idf, entropy, a file, or weights by word, found 5",
        ),
        (
            "dirichlet-network",
            {"topics": 2, "network": {"doc": {"over": "documents"}}},
            "network: 'doc': 'over': expected 'corpus', 'label', 'document' or 'segment', found 'documents'",
        ),
        ("lad", {"topics": 2}, "unknown family 'lad' (did you mean 'lda'?)"),
    ],
)
def test_options__are_checked(family, options, message):
    with pytest.raises(OptionError) as raised:
        make_options(family, options)
    assert message in str(raised.value)
    assert "options:" not in str(raised.value)


def test_errors__name_files_of_options(tmp_path):
    for option, text in (("seeds", "sea = 3"), ("seeds", "sea = ["), ("weights", "ship,many\n,x\nsail,x\n")):
        path = tmp_path / f"{option}.txt"
        path.write_text(text)
        with pytest.raises(OptionError, match=rf"^{option}: {path}: "):
            make_options("lda", {"topics": 2, option: str(path)})


def number_of(value):
    """Return the number in each of NumPy's types that can represent it, and in an array."""
    kinds = (np.int64, np.int16, np.uint8) if type(value) is int else (np.float64, np.float32, np.float16)
    return [np.bool_(value)] if isinstance(value, bool) else [*(kind(value) for kind in kinds), np.array(value)]


@pytest.mark.parametrize("family", family_names())
def test_numbers_of_numpy__are_accepted_by_all_options(family):
    declared = load_family(family).Options
    least = {"topics": 2, "seeds": {"a": ["x"]}, "network": {"doc": {"over": "document"}}}
    values = {name: value for name, value in least.items() if name in declared.model_fields}
    tried = 0
    for name in declared.model_fields:
        for value in (2, 0.5, True):
            with contextlib.suppress(OptionError):
                plain = make_options(family, {**values, name: value})
                for number in number_of(value):
                    assert repr(make_options(family, {**values, name: number})) == repr(plain)
                    tried += 1
    assert tried > 10


@given(st.integers(0, 255), st.booleans())
def test_python_values__have_no_type_of_numpy(number, flag):
    value = {np.int64(number): [np.uint8(number), (np.float32(0.5), np.bool_(flag))], "array": np.array([number, 1])}
    found = python_value(value)
    assert found == {number: [number, (0.5, flag)], "array": [number, 1]}
    kinds = [type(value) for value in (*found[number], *found[number][1], *found["array"], next(iter(found)))]
    assert kinds == [int, tuple, float, bool, int, int, int]


def test_options__accept_lists_and_single_names_for_tuples():
    for learn in ("alpha", ["alpha"], ("alpha",)):
        assert make_options("lda", {"topics": 2, "learn": learn}).learn == ("alpha",)
    assert make_options("lda", {"topics": 2, "alpha": 1}).alpha == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passes": 3}, "passes: applies only to `schedule` stochastic, found batch"),
        ({"batch_shards": 2}, "batch_shards: applies only to `schedule` stochastic"),
        ({"schedule": "stochastic", "local_sweeps": 2}, "local_sweeps: applies only to `schedule` batch"),
        ({"stop_on": "objective"}, "stop_on: objective requires `tolerance`"),
        ({"score_every": 2}, "score_every: 2 requires a held-out corpus (`heldout`) to score"),
    ],
)
def test_options_of_the_loop_without_effect__are_refused(options, message, small, tmp_path):
    with pytest.raises(OptionError) as raised:
        fit(small[0], tmp_path / "run", family="lda", topics=2, iterations=1, **options)
    assert message in str(raised.value)
    Limits(**options)


WITHOUT_EFFECT = [
    ("lda", {"topics": 2, "responsibilities": "dense", "most_active": 9}, "most_active: applies only to active resp"),
    (
        "vb-lda",
        {"topics": 2, "document_sweeps": 1, "document_tolerance": 0.5},
        "document_tolerance: applies only to more",
    ),
    ("hdsp", {"document_sweeps": 1, "document_tolerance": 0.5}, "document_tolerance: applies only to more passes"),
    ("hdp", {"order": 2, "momentum": 0.5}, "momentum: applies only to active responsibilities; these are dense"),
    (
        "hdp",
        {"order": 2, "inverse_temperature": 0.9},
        "inverse_temperature: applies only to active responsibilities; these are dense",
    ),
    ("lda", {"topics": 2, "tau": 3.0}, "tau: applies only to `learn` asymmetric-beta"),
    ("hdp", {"tau": 3.0, "learn": "beta"}, "tau: applies only to `learn` tau"),
    ("hdp", {"beta_shape": 3.0}, "beta_shape: applies only to `learn` beta"),
    ("segmented-lda", {"topics": 2, "learn": (), "strength_mean": 9.0}, "strength_mean: applies only to `learn` stre"),
    ("hdsp", {"topics": 2, "weight_variance": 2.0}, "weight_variance: applies only to `scaling` linear, found labels"),
    ("hdsp", {"topics": 2, "scaling": "linear", "weight_rate": 2.0}, "weight_rate: applies only to `scaling` labels"),
]


@pytest.mark.parametrize("family", family_names())
def test_options_of_simulations__are_refused_by_fits_of_each_family(family):
    declared = load_family(family).Options
    described = {
        name for name, field in declared.model_fields.items() if str(field.description).startswith("simulate:")
    }
    assert set(declared.drawn) == described
    for name in described:
        value = (2,) if name == "branching" else 0.7
        with pytest.raises(OptionError, match=f"^{name}: applies only to `simulate`$"):
            make_options(family, {name: value})
        assert getattr(make_options(family, {name: value}, drawing=True), name) == value


@pytest.mark.parametrize(("family", "options", "message"), WITHOUT_EFFECT)
def test_options_of_families_without_effect__are_refused(family, options, message):
    with pytest.raises(OptionError) as raised:
        make_options(family, options)
    assert message in str(raised.value)
    # Runs of earlier versions may have them, and can be resumed.
    before = recorded_options(family, options)
    assert changed_options(family, before, {"topics": before.topics}, ()) == before


def test_options__have_the_documented_defaults():
    lda, hdp = make_options("lda", {"topics": 7}), make_options("hdp", {})
    assert (lda.alpha, lda.beta, lda.order, lda.learn) == (None, 100.0, 0, ())
    assert (lda.responsibilities, lda.most_active, lda.momentum, lda.inverse_temperature) == (None, None, 0.8, None)
    assert [make_options("lda", {"topics": 7, "order": order}).active for order in (0, 2)] == [True, False]
    assert (hdp.alpha_shape, hdp.alpha_rate, hdp.gamma_shape, hdp.gamma_rate, hdp.beta) == (4, 4, 7, 7, 100)
    assert (hdp.learn, hdp.learned) == (None, ("gamma", "pi"))
    assert make_options("hdp", {"order": 2}).learned == ("alpha", "gamma", "pi")


@pytest.mark.parametrize(
    "limits",
    [
        {"iterations": 0},
        {"iterations": 1.5},
        {"tolerance": -1},
        {"tolerance": float("nan")},
        {"stop_on": "x"},
        {"score_every": 0},
        {"local_sweeps": 0},
        {"local_sweeps": None},
        {"local_sweeps": True},
        {"schedule": "online"},
        {"passes": 0},
        {"passes": 2.0},
        {"batch_shards": -1},
        {"iterations": 10**20},
        {"samples": 10**20},
    ],
)
def test_limits__are_checked(limits):
    with pytest.raises(OptionError, match=f"^{next(iter(limits))}: expected .*, found"):
        Limits(**limits)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.one_of(st.none(), st.integers(1, 60)))
def test_limits__plan_the_number_of_minibatches(shards, size, passes, iterations):
    limits = Limits(schedule="stochastic", batch_shards=size, passes=passes, iterations=iterations)
    problem = SimpleNamespace(shards=range(shards), stream=Stream(3))
    by_pass = [minibatches(problem, size, number) for number in range(passes)]
    for found in by_pass:  # each pass visits every shard once
        assert sorted(shard for batch in found for shard in batch) == list(range(shards))
        assert all(0 < len(batch) <= size for batch in found)
    assert len(by_pass[0][0]) == 1
    count = sum(map(len, by_pass))
    assert limits.planned(shards) == (count if iterations is None else min(count, iterations))


def test_limits_of_the_batch_schedule__do_not_depend_on_shards():
    assert {Limits().planned(shards) for shards in (1, 5, 100)} == {200}
    assert Limits(iterations=7).planned(100) == 7
    assert Limits(iterations=7, local_sweeps=3, passes=9).planned(100) == 7


@pytest.mark.parametrize("options", [{"order": 2}, {"learn": ["beta"]}])
def test_stochastic_schedule__refuses_options_that_it_does_not_support(small, tmp_path, options):
    with pytest.raises(OptionError, match="schedule: 'stochastic' requires `order` 0"):
        fit(small[0], tmp_path / "run", family="lda", topics=3, schedule="stochastic", scheduler="serial", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha=0.1", ("alpha", 0.1)),
        ('learn=["alpha"]', ("learn", ["alpha"])),
        ("alpha-shape=3", ("alpha_shape", 3)),
        ("scaling=labels", ("scaling", "labels")),
        ("learn=alpha,beta", ("learn", "alpha,beta")),
        ('name="x=y"', ("name", "x=y")),
        ("flag=true", ("flag", True)),
    ],
)
def test_settings__are_toml_values(text, expected):
    assert parse_setting(text) == expected


def test_settings__require_a_name():
    for text in ("alpha", "=3", ""):
        with pytest.raises(OptionError, match="expected name=VALUE"):
            parse_setting(text)


def test_the_configuration_file__is_read_and_checked(tmp_path):
    path = tmp_path / "f.toml"
    path.write_text('family = "hdp"\ntopics = 9\nscore-every = 5\n')
    assert read_config(str(path), None) == {"family": "hdp", "topics": 9, "score_every": 5}
    for text, where in (
        ('family = "hdp"\ntopisc = 9\n', r"field 'topisc': unknown option of family 'hdp' \(did you mean 'topics'"),
        ("topics = 9\n", "field 'family'"),
        ("topics = \n", "expected TOML"),
        ('family = "hpd"\n', "f.toml: 'family': unknown family 'hpd' .did you mean 'hdp'"),
        ('family = "hdp"\nworkers = "a"\n', "f.toml: field 'workers': expected a whole number, found 'a'"),
        ('family = "hdp"\npasses = "a"\n', "field 'passes': expected a whole number, found 'a'"),
        (
            'family = "hdp"\nlocal-sweeps = 1.5\n',
            r"field 'local-sweeps': expected a whole number or a string, found 1\.5",
        ),
        ('family = "hdp"\nmemory = 1.5\n', r"field 'memory': expected a string or a whole number, found 1\.5"),
        ('family = "hdp"\nscheduler = 3\n', "field 'scheduler': expected a string, found 3"),
        ('family = "hdp"\nseed = true\n', "field 'seed': expected a whole number, found True"),
    ):
        path.write_text(text)
        with pytest.raises((InputError, OptionError), match=where):
            read_config(str(path), None)
    with pytest.raises(AbsentError):
        read_config(str(tmp_path / "none.toml"), "lda")


@pytest.mark.parametrize("written", ["alpha,beta", ["alpha", "beta"], ("alpha", "beta")])
def test_names__are_lists_or_separated_by_commas(written):
    assert make_options("lda", {"topics": 2, "learn": written}).learn == ("alpha", "beta")
    with pytest.raises(OptionError, match="learn: "):
        make_options("lda", {"topics": 2, "learn": "alpha,gamma"})


def test_local_sweeps_auto__sweeps_once():
    assert [Limits(local_sweeps=value).sweeps_per_exchange for value in (1, 3, "auto")] == [1, 3, 1]
    with pytest.raises(OptionError, match="expected a whole number of 1 or more, or auto"):
        Limits(local_sweeps="several")


SIZES = ("max_decompressed",)  # Not recorded
MAY_BE_INFINITE = {"cluster_timeout", "words_over strength"}  # Nothing times out, or changes


def all_numbers():
    """Return the models and names of all options that are numbers, of functions and of families."""
    functions = {name: getattr(getattr(pipeline, name), "option_models", ()) for name in pipeline.__all__}
    models = {model: function for function, models in functions.items() for model in models}
    models |= {load_family(name).Options: name for name in family_names()}
    return [
        pytest.param(model, name, id=f"{owner} {name}")
        for model, owner in models.items()
        for name, field in model.model_fields.items()
        if {int, float} & set(kinds_of(field.annotation))
    ]


@pytest.mark.parametrize(("model", "name"), all_numbers())
def test_numbers__that_no_record_can_hold_are_refused_by_name(model, name, request):
    fields, may_be_infinite = model.model_fields.items(), any(option in request.node.name for option in MAY_BE_INFINITE)
    required = {field: "3" if declared.annotation is str else 3 for field, declared in fields if declared.is_required()}
    recorded = issubclass(model, (IngestOptions, FamilyOptions)) and float not in kinds_of(
        model.model_fields[name].annotation
    )
    for value in (math.nan, math.inf, -math.inf, *((1 << 70,) if recorded and name not in SIZES else ())):
        if value == math.inf and may_be_infinite:
            assert getattr(model(**required, **{name: value}), name) == value
            continue
        with pytest.raises((OptionError, ValidationError)) as refused:
            model(**{**required, name: value})
        assert name in str(refused.value)
