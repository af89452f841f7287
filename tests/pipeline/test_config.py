import pytest

from collapsar.pipeline.config import Limits, make_config, parse_setting, read_config
from collapsar.storage.errors import AbsentError, InputError, OptionError


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("lda", {}, "--topics is required: number of topics K"),
        ("lda", {"topics": 0}, "--topics: expected a value greater than or equal to 1, found 0"),
        ("hdp", {"topics": -3}, "--topics"),
        ("hdp", {"topics": 2.5}, "--topics"),
        ("lda", {"topics": 2, "alpha": 0}, "--alpha: expected a value greater than 0, found 0"),
        ("lda", {"topics": 2, "alpha": float("inf")}, "--alpha"),
        ("lda", {"topics": 2, "order": 1}, "--order: expected 0 or 2, found 1"),
        ("lda", {"topics": True}, "--topics: expected a valid integer, found True"),
        ("lda", {"topics": 2, "alpha": "0.1"}, "--alpha: expected a valid number, found '0.1'"),
        ("lda", {"topics": 2, "alpa": 1}, "unknown option 'alpa' of family 'lda' (did you mean 'alpha'?)"),
        ("lda", {"topics": 2, "learn": ["alpha", "asymmetric-alpha"]}, "name either alpha or asymmetric-alpha"),
        ("hdp", {"learn": ["delta"]}, "--learn"),
        ("lad", {"topics": 2}, "unknown family 'lad' (did you mean 'lda'?)"),
    ],
)
def test_options__are_checked(family, options, message):
    with pytest.raises(OptionError) as raised:
        make_config(family, options)
    assert message in str(raised.value)


def test_options__take_lists_and_single_names_for_tuples():
    for learn in ("alpha", ["alpha"], ("alpha",)):
        assert make_config("lda", {"topics": 2, "learn": learn}).learn == ("alpha",)
    assert make_config("lda", {"topics": 2, "alpha": 1}).alpha == 1.0


def test_options__have_the_documented_defaults():
    lda, hdp = make_config("lda", {"topics": 7}), make_config("hdp", {})
    assert (lda.alpha, lda.beta, lda.order, lda.learn) == (0.1, 100.0, 0, ())
    assert (hdp.alpha_shape, hdp.alpha_rate, hdp.gamma_shape, hdp.gamma_rate, hdp.beta) == (4, 4, 7, 7, 100)
    assert hdp.learn == ("alpha", "gamma", "pi")


@pytest.mark.parametrize(
    "limits",
    [
        {"iterations": 0},
        {"iterations": 1.5},
        {"tolerance": -1},
        {"tolerance": float("nan")},
        {"stop_on": "x"},
        {"score_every": 0},
    ],
)
def test_limits__are_checked(limits):
    with pytest.raises(OptionError, match=next(iter(limits)).replace("_", "-")):
        Limits(**limits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha=0.1", ("alpha", 0.1)),
        ('learn=["alpha"]', ("learn", ["alpha"])),
        ("alpha-shape=3", ("alpha_shape", 3)),
        ("scaling=labels", ("scaling", "labels")),
        ('name="x=y"', ("name", "x=y")),
        ("flag=true", ("flag", True)),
    ],
)
def test_settings__are_toml_values(text, expected):
    assert parse_setting(text) == expected


def test_settings__need_a_name():
    for text in ("alpha", "=3", ""):
        with pytest.raises(OptionError, match="expected name=VALUE"):
            parse_setting(text)


def test_config_file__is_read_and_checked(tmp_path):
    path = tmp_path / "f.toml"
    path.write_text('family = "hdp"\ntopics = 9\nscore-every = 5\n')
    assert read_config(str(path), None) == {"family": "hdp", "topics": 9, "score_every": 5}
    for text, where in (
        ('family = "hdp"\ntopisc = 9\n', r"field 'topisc': unknown option of family 'hdp' \(did you mean 'topics'"),
        ("topics = 9\n", "field 'family'"),
        ("topics = \n", "expected TOML"),
        ('family = "hpd"\n', "did you mean 'hdp'"),
        ('family = "hdp"\nworkers = "a"\n', "f.toml: field 'workers': expected a whole number, found 'a'"),
        ('family = "hdp"\nscheduler = 3\n', "field 'scheduler': expected a string, found 3"),
        ('family = "hdp"\nseed = true\n', "field 'seed': expected a whole number, found True"),
    ):
        path.write_text(text)
        with pytest.raises((InputError, OptionError), match=where):
            read_config(str(path), None)
    with pytest.raises(AbsentError):
        read_config(str(tmp_path / "none.toml"), "lda")
