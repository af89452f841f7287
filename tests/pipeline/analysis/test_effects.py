"""Effects of covariates, against statsmodels and a naive version, and on corpora with fields."""

import json
import shutil
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collapsium.pipeline import (
    Model,
    effects,
    fit,
    ingest,
    report,
    shares_by,
    shares_over,
    table_effects,
    topic_shares,
    verify,
)
from collapsium.pipeline.analysis import posteriors
from collapsium.pipeline.analysis.effects import TableSource, columns_of_frame
from collapsium.pipeline.analysis.options import EffectOptions
from collapsium.pipeline.analysis.regression import Regression
from collapsium.pipeline.analysis.topic_shares import by_period
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.formatting import percent
from collapsium.pipeline.reporting.plots.effects import curves_of, effects_figure
from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError, InputError, OptionError
from collapsium.storage.runs.summary import read_summary
from collapsium.storage.units import silent
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.design import check_formula
from tests.naive.posteriors import composition


def table(seed, documents, topics=3, mean_year=2000.0):
    """Return topic proportions, fields with a number far from zero and a label of three levels, and the design matrix
    with their products."""
    generator = np.random.default_rng(seed)
    year = generator.normal(mean_year, 10.0, documents)
    group = generator.choice(["a", "b", "c"], documents, p=[0.5, 0.3, 0.2])
    cluster = generator.integers(0, 6, documents).astype(str)
    theta = generator.dirichlet(np.full(topics, 0.5), documents)
    levels, counts = np.unique(group, return_counts=True)
    first = levels[np.argmax(counts)]
    marks = [(group == level).astype(float) for level in levels if level != first]
    rows = np.column_stack([np.ones(documents), *marks, year, *(mark * year for mark in marks)])
    return theta, pd.DataFrame({"year": year, "group": group, "cluster": cluster}), rows


@given(
    seed=st.integers(0, 10_000),
    documents=st.integers(25, 80),
    errors=st.sampled_from(["robust", "classical", "cluster"]),
)
def test_tables__equal_statsmodels(seed, documents, errors):
    import statsmodels.api as sm

    # With years around 2000, statsmodels loses digits: 1e-8 in clustered errors of 25 documents.
    theta, frame, rows = table(seed, documents, mean_year=20.0)
    assume(np.linalg.cond(rows / np.linalg.norm(rows, axis=0)) < 3e4)  # beyond that, both lose digits
    options = {"cluster": {"cluster": "cluster"}, "classical": {"errors": "classical"}}.get(errors, {})
    found = table_effects(theta, frame, "~ group * year", **options)
    kinds = {
        "cluster": {"cov_type": "cluster", "cov_kwds": {"groups": frame.cluster.astype(int)}},
        "robust": {"cov_type": "HC1"},
    }.get(errors, {})
    for topic in range(theta.shape[1]):
        expected = sm.OLS(theta[:, topic], rows).fit(use_t=True, **kinds)
        scale = np.abs(expected.params).max()
        np.testing.assert_allclose(found.estimate[:, topic], expected.params, rtol=1e-8, atol=1e-8 * scale)
        np.testing.assert_allclose(found.se[:, topic], expected.bse, rtol=1e-8)
        np.testing.assert_allclose(found.p[:, topic], expected.pvalues, rtol=1e-6, atol=1e-12)
        low, high = expected.conf_int().T
        width = (high - low).max()
        np.testing.assert_allclose(found.low[:, topic], low, rtol=1e-8, atol=1e-8 * width)
        np.testing.assert_allclose(found.high[:, topic], high, rtol=1e-8, atol=1e-8 * width)


def inverse(matrix):
    """Return the inverse of a matrix of fractions."""
    size = len(matrix)
    rows = [[*row, *(Fraction(number == column) for column in range(size))] for number, row in enumerate(matrix)]
    for pivot in range(size):
        rows[pivot] = [value / rows[pivot][pivot] for value in rows[pivot]]
        for number in {*range(size)} - {pivot}:
            factor = rows[number][pivot]
            rows[number] = [a - factor * b for a, b in zip(rows[number], rows[pivot], strict=True)]
    return np.array([row[size:] for row in rows])


@pytest.mark.parametrize("seed", [25, 1, 2])
def test_clustered_errors__agree_with_an_exact_computation(seed):
    """The reference uses fractions, and the design is nearly collinear, because years are far from zero."""
    theta, frame, rows = table(seed, 25)
    found = table_effects(theta, frame, "~ group * year", cluster="cluster").se
    exact = np.vectorize(Fraction, otypes=[object])
    design, shares = exact(rows), exact(theta)
    bread = inverse(design.T @ design)
    residuals = shares - design @ bread @ design.T @ shares
    members = [frame.cluster.to_numpy() == name for name in sorted(set(frame.cluster))]
    documents, columns = rows.shape
    scale = Fraction(len(members), len(members) - 1) * Fraction(documents - 1, documents - columns)
    for topic in range(theta.shape[1]):
        scores = np.array([design[member].T @ residuals[member, topic] for member in members])
        variance = scale * np.diag(bread @ scores.T @ scores @ bread)
        np.testing.assert_allclose(found[:, topic], np.sqrt(variance.astype(float)), rtol=1e-11)


@given(seed=st.integers(0, 10_000), errors=st.sampled_from(["robust", "classical", "cluster"]))
def test_posterior_variances__enter_as_in_the_naive_version(seed, errors):
    theta, frame, rows = table(seed, 60)
    generator = np.random.default_rng(seed)
    variance = generator.random(theta.shape).astype(np.float32) * 0.05
    mean = theta.astype(np.float32)
    options = EffectOptions(
        cluster="cluster" if errors == "cluster" else None, errors="classical" if errors == "classical" else "robust"
    )
    columns = {name: frame[name].to_numpy(dtype=float if name == "year" else object) for name in frame}
    executor = SerialExecutor()
    regression = Regression(TableSource(theta, columns, 13), executor, options, silent)
    regression.prepare(check_formula("~ group * year"))
    regression.posteriors = [
        executor.hold({"mean": mean[chosen], "variance": variance[chosen], "tokens": np.ones(len(mean[chosen]))})
        for chosen in (slice(start, start + 13) for start in range(0, 60, 13))
    ]
    [found] = regression.estimates(np.arange(3), ["", "", ""])
    clusters = frame.cluster.tolist() if errors == "cluster" else None
    expected = composition(rows, mean.astype(float), variance.astype(float), errors, clusters)
    for topic, (beta, covariance) in enumerate(expected):
        np.testing.assert_allclose(found.estimate[:, topic], beta, rtol=1e-7, atol=1e-7 * np.abs(beta).max())
        np.testing.assert_allclose(found.se[:, topic], np.sqrt(np.diag(covariance)), rtol=1e-6)


def test_logit__gives_the_coefficients_of_statsmodels():
    import statsmodels.api as sm

    theta, frame, rows = table(5, 200)
    found = table_effects(theta, frame, "~ group * year", link="logit")
    for topic in range(3):
        expected = sm.GLM(theta[:, topic], rows, family=sm.families.Binomial()).fit(tol=1e-12, cov_type="HC0")
        np.testing.assert_allclose(found.estimate[:, topic], expected.params, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found.se[:, topic], expected.bse * np.sqrt(200 / 194), rtol=1e-6)


def test_logit__converges_for_levels_far_from_the_mean_share():
    share = np.concatenate([np.linspace(0.005, 0.02, 590), np.full(10, 0.6)])
    level = [f"a{number // 60}" if number < 590 else f"b{number // 2}" for number in range(600)]
    found = table_effects(
        np.stack([share, 1.0 - share], axis=1), {"level": level}, "~ level", link="logit", at=["level"]
    )
    expected = pd.Series(share).groupby(level).mean()
    assert found.terms == [f"level={name}" for name in expected.index]
    np.testing.assert_allclose(found.estimate[:, 0], expected, rtol=1e-8)
    assert not found.notes


def test_logit__leaves_topics_that_are_absent_at_some_values_at_small_shares():
    theta, frame, _ = table(2, 60)
    group = frame.group.to_numpy()
    theta[group == "a"] = [0.0, 0.0, 1.0]
    found = table_effects(theta, frame, "~ group", link="logit", at=["group"])
    means = np.array([theta[group == name].mean(axis=0) for name in "abc"])
    np.testing.assert_allclose(found.estimate, means, atol=1e-9)
    assert found.notes[-1] == "The logit did not converge; a topic may be absent at some values."


def test_predictions__average_over_the_documents_and_lie_between_zero_and_one():
    theta, frame, rows = table(7, 120)
    found = table_effects(theta, frame, "~ group * year", at=["group=b", "year=1990,2010"])
    beta = np.linalg.lstsq(rows, theta, rcond=None)[0]
    levels, counts = np.unique(frame.group, return_counts=True)
    first = levels[np.argmax(counts)]
    marks = [float(level == "b") for level in levels if level != first]
    for row, year in enumerate((1990.0, 2010.0)):
        expected = np.array([1.0, *marks, year, *(mark * year for mark in marks)]) @ beta
        np.testing.assert_allclose(found.estimate[row], expected, atol=1e-9)
    assert ((found.low >= 0) & (found.low < found.estimate) & (found.estimate < found.high) & (found.high <= 1)).all()
    assert found.terms == ["group=b, year=1990", "group=b, year=2010"]
    assert np.isnan(found.p).all()
    averaged = table_effects(theta, frame, "~ group * year", at=["group=b"])
    chosen = rows.copy()
    chosen[:, 1:3], chosen[:, 4:6] = marks, np.outer(frame.year, marks)
    np.testing.assert_allclose(averaged.estimate[0], (chosen @ beta).mean(axis=0), atol=1e-9)


def test_predictions_of_a_logit__are_means_of_the_documents_shares():
    import statsmodels.api as sm

    theta, frame, rows = table(7, 200)
    # A group in which the topic is rare: its share at the mean document is far below the mean share.
    theta[frame.group == "a", 0] *= 0.01
    found = table_effects(theta, frame, "~ group * year", at=["year=1990,2010"], link="logit")
    for row, year in enumerate((1990.0, 2010.0)):
        at = rows.copy()
        at[:, 3], at[:, 4:] = year, rows[:, 1:3] * year
        for topic in range(3):
            fit = sm.GLM(theta[:, topic], rows, family=sm.families.Binomial()).fit(tol=1e-12, cov_type="HC0")
            shares = fit.predict(at)
            gradient = (shares * (1.0 - shares)) @ at / 200
            se = np.sqrt(gradient @ fit.cov_params() @ gradient * 200 / 194)
            np.testing.assert_allclose(found.estimate[row, topic], shares.mean(), rtol=1e-6)
            np.testing.assert_allclose(found.se[row, topic], se, rtol=1e-4)
    assert ((found.low > 0) & (found.low < found.estimate) & (found.estimate < found.high) & (found.high < 1)).all()


def test_contrasts__are_differences_of_predictions_with_the_errors_of_the_coefficients():
    theta, frame, _ = table(8, 150)
    coefficients = table_effects(theta, frame, "~ group + year")
    found = table_effects(theta, frame, "~ group + year", contrast=["group"])
    rows = [coefficients.terms.index(name) for name in coefficients.terms if name.startswith("group")]
    np.testing.assert_allclose(found.estimate, coefficients.estimate[rows], rtol=1e-9)
    np.testing.assert_allclose(found.se, coefficients.se[rows], rtol=1e-9)
    slope = table_effects(theta, frame, "~ group + year", contrast=["year=2010,2000"])
    place = coefficients.terms.index("year")
    np.testing.assert_allclose(slope.estimate[0], 10 * coefficients.estimate[place], rtol=1e-8)
    np.testing.assert_allclose(slope.se[0], 10 * coefficients.se[place], rtol=1e-8)


@pytest.mark.parametrize("options", [{}, {"link": "logit"}, {"cluster": "cluster"}, {"errors": "classical"}])
def test_a_constant_proportion__has_no_effect_and_no_p_value(options):
    theta, frame, _ = table(9, 150)
    constant = np.column_stack([np.full(len(theta), 0.3), 0.7 * theta])
    found = table_effects(constant, frame, "~ group + year", contrast=["group"], **options)
    assert (found.estimate[:, 0] == 0.0).all()
    assert (found.se[:, 0] == 0.0).all()
    assert np.isnan(found.p[:, 0]).all()
    rest = table_effects(0.7 * theta, frame, "~ group + year", contrast=["group"], **options)
    np.testing.assert_allclose(found.p_adjusted[:, 1:], rest.p_adjusted, rtol=1e-6)


def test_adjusted_p_values__follow_holm():
    theta, frame, _ = table(9, 100, topics=4)
    found = table_effects(theta, frame, "~ year")
    p = np.sort(found.p[1])
    expected = np.minimum(np.maximum.accumulate(p * np.arange(4, 0, -1)), 1.0)
    np.testing.assert_allclose(np.sort(found.p_adjusted[1]), expected)


def test_permutations__are_significant_at_about_the_nominal_rate():
    theta, frame, _ = table(10, 300)
    theta[frame.group == "a"] = theta[frame.group == "a"][:, ::-1] * [0.2, 1.0, 1.0]
    [note] = table_effects(theta, frame, "~ group", permutations=60).notes
    share = float(note.split(" in ")[1].split("%")[0])
    assert 1.5 < share < 9.0
    assert float(note.rsplit(" in ", 1)[1].split("%")[0]) > 15.0


@pytest.mark.parametrize("errors", ["robust", "cluster"])
def test_errors__do_not_depend_on_the_division_into_parts_and_chunks(errors, monkeypatch):
    theta, frame, _ = table(12, 90)
    options = EffectOptions(cluster="cluster" if errors == "cluster" else None, permutations=3)
    columns = {name: frame[name].to_numpy(dtype=float if name == "year" else object) for name in frame}
    columns["cluster"] = np.sort(columns["cluster"])  # most clusters are within one part
    found = []
    for rows, chunk in ((90, 8192), (30, 7), (11, 4)):
        monkeypatch.setattr("collapsium.pipeline.analysis.regression.CHUNK", chunk)
        regression = Regression(TableSource(theta, columns, rows), SerialExecutor(), options, silent)
        regression.prepare(check_formula("~ group + year"))
        found += regression.estimates(np.arange(3), ["", "", ""])
    for chunked in found[1:]:
        np.testing.assert_allclose(chunked.estimate, found[0].estimate, rtol=1e-9)
        np.testing.assert_allclose(chunked.se, found[0].se, rtol=1e-9)


@pytest.mark.parametrize("whole", [True, False])
def test_permutations__exchange_values_between_whole_clusters(whole):
    theta, frame, _ = table(13, 95)
    keys = [None] * 5 + [f"c{number // 10}" for number in range(90)]
    group = frame["group"].to_numpy(dtype=object)
    group[:5] = list("aabbc")
    if whole:
        group[5:] = keys[5:]
    columns = {"group": group, "cluster": np.array(keys, dtype=object)}
    regression = Regression(TableSource(theta, columns, 13), SerialExecutor(), EffectOptions(cluster="cluster"), silent)
    regression.prepare(check_formula("~ group"))
    permutations = regression._permutations("group")
    places = {key: np.flatnonzero([cluster == key for cluster in keys]) for key in {*keys}}
    for seed in range(5):
        shuffled = np.full(95, None, dtype=object)
        for part, (name, values) in enumerate(permutations.parts(Stream(seed, "permutations"))):
            assert name == "group"
            for key, cluster_values in values.items():
                shuffled[[place for place in places[key] if place // 13 == part]] = cluster_values
        assert sorted(shuffled[:5]) == list("aabbc")
        # clusters of equal sizes exchange all their values
        before, after = (
            sorted(tuple(sorted(column[places[key]])) for key in places if key is not None)
            for column in (group, shuffled)
        )
        assert before == after
        assert shuffled.tolist() != group.tolist()


def test_missing_values__become_a_level_of_a_label_or_the_mean_of_a_number_with_an_indicator():
    theta, frame, _ = table(11, 90)
    frame.loc[:9, "year"] = np.nan
    frame.loc[5:19, "group"] = None
    found = table_effects(theta, frame, "~ group + year")
    assert "year[missing]" in found.terms
    assert any("(missing)" in term for term in found.terms)
    observed = table_effects(theta[10:], frame[10:], "~ group + year")
    assert found.documents == 90
    assert observed.documents == 80
    np.testing.assert_allclose(
        found.estimate[found.terms.index("year")], observed.estimate[observed.terms.index("year")], atol=5e-3
    )


def test_numbers_as_levels__have_a_level_for_missing_values_and_exact_names():
    theta, frame, _ = table(11, 90)
    frame["code"] = np.resize([1000001.0, 1000002.0, np.nan], 90)
    at = table_effects(theta, frame, "~ C(code)", at=["code"])
    assert at.terms == ["code=1000001", "code=1000002", "code=(missing)"]
    means = [theta[frame.code.fillna(0) == code].mean(axis=0) for code in (1000001, 1000002, 0)]
    np.testing.assert_allclose(at.estimate, means, atol=1e-12)
    gap = table_effects(theta, frame, "~ C(code) + year", contrast=["code=(missing),1000001"])
    both = table_effects(theta, frame, "~ C(code) + year", at=["code"])
    assert gap.terms == ["code: (missing) - 1000001"]
    np.testing.assert_allclose(gap.estimate[0], both.estimate[2] - both.estimate[0], atol=1e-12)
    with pytest.raises(OptionError, match="at: code: no document has the value '5'"):
        table_effects(theta, frame, "~ C(code)", at=["code=5"])


def test_points_of_a_narrow_curve__have_distinct_names():
    theta, frame, _ = table(11, 90)
    curve = table_effects(theta, frame.assign(year=2001.5 + frame.year * 1e-6), "~ bs(year)", at=["year"])
    assert len({*curve.terms}) == len(curve.terms) > 2


def test_numbers_with_a_relatively_small_variance__are_refused_unless_centred():
    theta, frame, _ = table(11, 90)
    near = frame.assign(year=2001.0 + frame.year * 1e-8)
    with pytest.raises(OptionError, match=r"'year' varies too little for its size; write center\(year\)"):
        table_effects(theta, near, "~ year")
    slopes = [table_effects(theta, fields, "~ center(year)").estimate[1] for fields in (frame, near)]
    np.testing.assert_allclose(slopes[1] * 1e-8, slopes[0], rtol=1e-4)


def test_several_contrasts__each_average_over_the_documents():
    theta, frame, _ = table(3, 80)
    single = [
        table_effects(theta, frame, "~ group * year", contrast=[text]) for text in ("group=a,b", "year=2010,1990")
    ]
    both = table_effects(theta, frame, "~ group * year", contrast=["group=a,b", "year=2010,1990"])
    assert both.terms == [term for found in single for term in found.terms]
    np.testing.assert_array_equal(both.estimate, np.concatenate([found.estimate for found in single]))
    np.testing.assert_array_equal(both.se, np.concatenate([found.se for found in single]))


def test_contrasts_beside_numbers_as_levels__equal_coefficients():
    theta, frame, _ = table(3, 80)
    frame["code"] = [10.0, 12.0, 17.0, 10.0] * 20
    coefficients = table_effects(theta, frame, "~ group + C(code)")
    found = table_effects(theta, frame, "~ group + C(code)", contrast=["group"])
    np.testing.assert_allclose(found.estimate, coefficients.estimate[1:3], rtol=1e-10)
    np.testing.assert_allclose(found.se, coefficients.se[1:3], rtol=1e-10)


def test_contrasts_of_numbers_as_levels__compare_each_with_the_most_frequent():
    theta, frame, _ = table(3, 80)
    frame["code"] = [10.0, 12.0, 17.5, 12.0, np.nan] * 16
    coefficients = table_effects(theta, frame, "~ C(code) + year")
    found = table_effects(theta, frame, "~ C(code) + year", contrast=["code"])
    assert found.terms == ["code: 10 - 12", "code: 17.5 - 12", "code: (missing) - 12"]
    np.testing.assert_allclose(found.estimate, coefficients.estimate[1:4], rtol=1e-10)


def test_levels_with_commas__can_be_compared():
    theta, frame, _ = table(11, 90)
    frame["group"] = frame["group"].replace({"c": "Paris, Texas"})
    found = table_effects(theta, frame, "~ group", contrast=["group=Paris, Texas, a"])
    swapped = table_effects(theta, frame, "~ group", contrast=["group=a,Paris, Texas"])
    assert found.terms == ["group: Paris, Texas - a"]
    np.testing.assert_allclose(found.estimate, -swapped.estimate, atol=1e-12)


def test_levels_with_white_space_at_an_end__can_be_compared():
    theta, frame, _ = table(11, 90)
    expected = table_effects(theta, frame, "~ group", contrast=["group=c, a"])
    frame["group"] = frame["group"].replace({"c": "c ", "b": " b"})
    found = table_effects(theta, frame, "~ group", contrast=["group=c , a"])
    assert found.terms == ["group: c  - a"]
    np.testing.assert_array_equal(found.estimate, expected.estimate)
    assert table_effects(theta, frame, "~ group", at=["group= b,a"]).terms == ["group= b", "group=a"]


def test_differences_along_a_number__have_a_curve_for_each_value_of_other_fields():
    theta, frame, _ = table(11, 90)
    frame["kind"] = np.resize(["x", "y"], 90)
    gap = table_effects(theta, frame, "~ group * year * kind", contrast=["group=a,b"], at=["year", "kind"])
    curves = curves_of(gap, "year")
    assert {name: len(rows) for name, rows in curves.items()} == {
        "group: a - b at kind=x": 25,
        "group: a - b at kind=y": 25,
    }


@pytest.mark.parametrize(
    "formula",
    [
        "~ __import__('os').system('false')", "~ year.__class__", "~ open(year)", "~ eval(year)", "~ C(group, Sum)",
        "~ lag(year)", "~ {year}", "~ year[0]", "~ 'group'", "~ lambda: year", "~ year if year else 1", "~ .", "~ a | b",
        "year ~ group", "~ year^99", "~ poly(year, 100000)", "~ bs(year, df=9**9)", "~ bs(year, extrapolation=1)",
        "~ year\\x", "~ year; group", "~ np", "~ (year", "~ year)", "~ ", "", "~ 3", "~ I(year**9)", "~ @year",
        "~ bs(year, knots=[year])", "~ C(C(group))", "~ log(C(group))", "~ a*b*c*d*e*f*g*h*i", "~ " + "x" * 3000,
    ],
)  # fmt: skip
def test_formulas__that_are_not_allowed_are_refused_in_one_line(formula):
    theta, frame, _ = table(0, 30)
    with pytest.raises(OptionError) as caught:
        table_effects(theta, frame, formula)
    assert "\n" not in str(caught.value)
    assert "zz" not in str(caught.value)


@given(st.text("abc yearg~+-*:^()[],.=`'0123{}@|<>!&%$#;\\\n\"_", max_size=30))
def test_formulas_with_any_characters__are_estimated_or_refused_in_one_line(text):
    theta, frame, _ = table(0, 30)
    found, refusal = None, ""
    try:
        found = table_effects(theta, frame, text)
    except OptionError as error:
        refusal = str(error)
    if found is None:
        assert len(refusal.splitlines()) == 1
    else:
        assert np.isfinite(found.frame()["estimate"]).all()


@pytest.mark.parametrize(
    ("formula", "options", "message"),
    [
        ("~ yaer", {}, "no field 'yaer' (did you mean 'year'?)"),
        ("~ one", {}, "the column 'one' is constant"),
        ("~ huge", {}, "the column 'huge' has numbers too large to square; rescale it"),
        ("~ year +", {}, "'~ year +': Operator `+` has insuffient arguments and/or is misplaced. year +"),
        (["~ year"], {}, "expected a formula such as ~ party, found ['~ year']"),
        ("~ same", {}, "'same' is constant: all documents have 'x'"),
        ("~ year + twice", {}, "the column 'twice' is a combination of 'year'"),
        ("~ bs(year, df=6) * rare", {}, "the documents with rare=z are too few or too alike for a separate curve, bs("),
        ("~ key", {}, "'key' has another value in every document"),
        ("~ bs(group)", {}, "'group': expected numbers or dates, found 'a'"),
        ("~ log(zero)", {}, "not a finite number"),
        ("~ bs(year, df=4)", {"at": ["year=2999"]}, "lies beyond the knots of a spline; the documents have year from"),
        ("~ group", {"at": ["group=aa"]}, "at: group: no document has the value 'aa'"),
        ("~ group", {"at": ["yaer"]}, "at: 'yaer' is not a field of the formula"),
        ("~ year", {"at": ["year=soon"]}, "at: year: expected a number, found 'soon'"),
        ("~ group", {"contrast": ["group=a"]}, "expected two values, such as group=A,B"),
        ("~ year", {"at": ["year"], "contrast": ["year=2010,1990"]}, "at: 'year' is also the field of a `contrast`"),
        ("~ year", {"cluster": "clutser"}, "cluster: no field 'clutser' (did you mean 'cluster'?)"),
        ("~ year", {"cluster": "same"}, "expected two clusters or more"),
        ("~ year", {"level": 2}, "level: expected a share between 0 and 1"),
        ("~ year", {"permutations": 1, "permute": "group"}, "permute: 'group' is not a field of the formula"),
        ("~ year", {"permutations": 2**70}, "permutations: expected a whole number of 100,000 or less"),
        ("~ C(year)", {}, "'year' has another value in every document"),
    ],
)  # fmt: skip
def test_invalid_input__is_refused_in_one_line(formula, options, message):
    theta, frame, _ = table(1, 40)
    frame = frame.assign(
        one=1.0,
        huge=np.where(np.arange(40) < 9, 1e300, 1.0),
        same="x",
        rare=np.where(np.arange(40) < 37, "y", "z"),
        twice=2 * frame.year + 1,
        key=[f"k{n}" for n in range(40)],
        zero=np.arange(40.0),
    )
    with pytest.raises(OptionError) as caught:
        table_effects(theta, frame, formula, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tables__are_matched_by_ids_and_refused_if_they_do_not_match(tmp_path):
    theta, frame, _ = table(2, 50)
    expected = table_effects(theta, frame, "~ group")
    shares = pd.DataFrame(theta, columns=["x", "y", "z"])
    shares.insert(0, "id", [f"d{n}" for n in range(50)])
    fields = frame.assign(id=shares["id"]).sample(frac=1.0, random_state=1)
    shares.to_csv(tmp_path / "theta.csv", index=False)
    fields.to_csv(tmp_path / "table.csv", index=False)
    found = table_effects(tmp_path / "theta.csv", tmp_path / "table.csv", "~ group")
    np.testing.assert_allclose(found.estimate, expected.estimate, atol=1e-12)
    assert found.words == ["x", "y", "z"]
    with pytest.raises(OptionError, match="1 ids of the proportions are missing, such as 'd0'"):
        table_effects(shares, fields[fields.id != "d0"], "~ group")
    with pytest.raises(OptionError, match="occurs twice"):
        table_effects(pd.concat([shares, shares]), fields, "~ group")
    with pytest.raises(OptionError, match="expected as many rows as the proportions, 50"):
        table_effects(theta, frame[:40], "~ group")
    with pytest.raises(OptionError, match="expected proportions from 0 to 1, found 3"):
        table_effects(theta * 0 + 3, frame, "~ group")
    with pytest.raises(AbsentError, match="no such file"):
        table_effects(tmp_path / "none.csv", frame, "~ group")
    empty = theta.copy()
    empty[:3] = 0.0
    result = table_effects(empty, frame, "~ group")
    assert result.documents == 47
    assert "3 empty documents are left out." in result.notes


def test_tables__with_an_index_in_another_order_are_refused():
    theta, frame, _ = table(2, 50)
    ids = [f"d{n}" for n in range(50)]
    shares, fields = pd.DataFrame(theta, index=ids), frame.set_axis(ids)
    expected = table_effects(theta, frame, "~ group").estimate
    np.testing.assert_array_equal(table_effects(shares, fields, "~ group").estimate, expected)
    np.testing.assert_array_equal(table_effects(theta, fields, "~ group").estimate, expected)
    with pytest.raises(OptionError, match="data: has the index of the proportions in another order"):
        table_effects(shares, fields[::-1], "~ group")


def test_tables__match_integer_ids_that_pandas_converted_to_floats():
    theta, frame, _ = table(2, 50)
    shares = pd.DataFrame(theta, columns=["x", "y", "z"])
    shares.insert(0, "id", range(50))
    fields = pd.concat([frame.assign(id=np.arange(50.0)), pd.DataFrame({"id": [np.nan]})])
    found = table_effects(shares, fields, "~ group")
    np.testing.assert_array_equal(found.estimate, table_effects(theta, frame, "~ group").estimate)


@pytest.mark.parametrize(
    "written",
    [
        lambda dates: dates.astype(object).map(lambda date: date.date()),
        lambda dates: dates.dt.to_period("D"),
        lambda dates: dates.dt.tz_localize("UTC"),
    ],
)
def test_dates_of_tables__are_years_for_every_type_of_date(written):
    theta, _, _ = table(2, 50)
    dates = pd.Series(pd.date_range("2001-01-01", periods=50, freq="11D")).where(np.arange(50) != 7)
    expected = table_effects(theta, {"day": dates}, "~ bs(day)")
    found = table_effects(theta, {"day": written(dates)}, "~ bs(day)")
    assert found.terms == expected.terms
    np.testing.assert_array_equal(found.estimate, expected.estimate)


@pytest.mark.parametrize("written", [pd.Series, lambda dates: dates.dt.strftime("%Y-%m-%d")])
def test_the_date_of_a_table__is_a_number_with_periods_as_the_date_of_a_run(written, tmp_path):
    theta, _, _ = table(2, 50)
    dates = pd.Series(pd.date_range("1998-01-01", periods=50, freq="30D"))
    data = pd.DataFrame({"date": written(dates), "season": ["spring", "autumn"] * 25})
    years = dates.dt.year + (dates.dt.day_of_year - 1) / np.where(dates.dt.is_leap_year, 366, 365)
    expected = table_effects(theta, {"year": years}, "~ year")
    np.testing.assert_allclose(table_effects(theta, data, "~ date").estimate, expected.estimate, rtol=1e-9)
    found = table_effects(theta, data, "~ `date:decade`")
    assert found.terms == ["Intercept", "date:decade[T.2000s]"]
    later = (dates.dt.year >= 2000).to_numpy()
    np.testing.assert_allclose(found.estimate[1], theta[later].mean(axis=0) - theta[~later].mean(axis=0))
    labels = table_effects(theta, data[["season"]].rename(columns={"season": "date"}), "~ date")
    assert labels.terms == ["Intercept", "date[T.spring]"]


def test_dates_with_hours__differ_within_a_day():
    theta, _, _ = table(2, 50)
    dates = pd.Series(pd.date_range("2020-02-28", periods=50, freq="90min"))
    expected = table_effects(theta, {"date": dates.dt.strftime("%Y-%m-%dT%H:%M")}, "~ center(date)")
    for moments in (dates, dates.dt.tz_localize("UTC"), dates.dt.to_pydatetime()):
        found = table_effects(theta, {"date": moments}, "~ center(date)")
        np.testing.assert_allclose(found.estimate, expected.estimate, rtol=1e-6)


def test_frames_of_other_libraries__are_tables():
    import polars
    import pyarrow as pa

    theta, frame, _ = table(2, 50)
    expected = table_effects(theta, frame, "~ group")
    for library in (polars.from_pandas, pa.Table.from_pandas):
        found = table_effects(library(pd.DataFrame(theta, columns=["x", "y", "z"])), library(frame), "~ group")
        np.testing.assert_array_equal(found.estimate, expected.estimate)
        assert found.words == ["x", "y", "z"]
    with pytest.raises(OptionError, match="data: expected a CSV file, a frame or a matrix, found LazyFrame"):
        table_effects(theta, polars.from_pandas(frame).lazy(), "~ group")


def test_codes_of_csv_files__are_labels_and_ids(tmp_path):
    theta, _, _ = table(2, 60)
    ids = pd.Series([f"{number:03d}" for number in range(60)])
    codes = pd.Series([f"{number % 3:02d}" for number in range(60)])
    pd.DataFrame(theta, columns=["x", "y", "z"]).assign(id=ids)[["id", "x", "y", "z"]].to_csv(
        tmp_path / "theta.csv", index=False
    )
    pd.DataFrame({"id": ids, "post": codes, "size": range(60)})[::-1].to_csv(tmp_path / "data.csv", index=False)
    found = table_effects(tmp_path / "theta.csv", tmp_path / "data.csv", "~ post + size")
    assert found.terms == ["Intercept", "post[T.01]", "post[T.02]", "size"]
    expected = table_effects(theta, {"post": codes, "size": range(60)}, "~ post + size")
    np.testing.assert_allclose(found.estimate, expected.estimate, rtol=1e-9)


def test_zeros_of_some_topics__are_not_empty_documents():
    theta, frame, _ = table(2, 60)
    theta[:20, 2] = 0.0
    theta /= theta.sum(axis=1, keepdims=True)
    every = table_effects(theta, frame, "~ group + year")
    for columns in ([2], [1, 2]):
        found = table_effects(np.where(np.arange(60)[:, None] < 5, 0.0, theta)[:, columns], frame, "~ group + year")
        assert found.documents == 60
        assert not found.notes
    found = table_effects(theta[:, [2]], frame, "~ group + year")
    np.testing.assert_allclose(found.estimate[:, 0], every.estimate[:, 2], rtol=1e-9)
    theta[7] = 0.0
    assert "1 empty documents are left out." in table_effects(theta, frame, "~ group + year").notes


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, 0, None], dtype=object), pd.Series([1.0, 0, np.nan], dtype=object),
        pd.Series([True, False, None], dtype=object), pd.Series(pd.to_timedelta([1, 0, None], unit="s")),
    ],
)  # fmt: skip
def test_columns_of_numbers_and_durations__are_numbers_whatever_their_type(values):
    column = columns_of_frame(pd.DataFrame({"x": values}), "data")["x"]
    np.testing.assert_array_equal(column, [1.0, 0.0, np.nan])
    assert column.dtype == np.float64


def test_decimal_numbers_of_tables__are_numbers():
    theta, frame, _ = table(2, 50)
    prices = [Decimal(number % 7) / 4 for number in range(49)] + [None]
    assert table_effects(theta, {"price": prices}, "~ price").terms == ["Intercept", "price", "price[missing]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on texts whose group decides between two topics, in several shards."""
    folder, generator = tmp_path_factory.mktemp("effects"), np.random.default_rng(0)
    with (folder / "texts.jsonl").open("w") as file:
        for number in range(240):
            left = generator.random() < (0.8 if number % 2 else 0.3)
            words = generator.choice(["apple", "pear", "plum", "fig"] if left else ["iron", "zinc", "lead", "tin"], 12)
            record = {
                "id": f"d{number}", "text": "" if number == 7 else " ".join(words), "party": "ab"[number % 2],
                "speech": f"s{number // 6}", "score": float(number % 5), "day": f"{1990 + number % 20}-03-01",
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")
    ingest(
        folder / "texts.jsonl", folder / "corpus", labels=["party", "speech"], covariates=["score"], date="day",
        shard_tokens=1000, min_documents=1,
    )  # fmt: skip
    fit(folder / "corpus", folder / "run", family="lda", topics=2, iterations=30, scheduler="serial", seed=1)
    return folder


def test_runs__have_effects_of_labels_numbers_and_dates(run):
    found = effects(run / "run", "~ party + score + bs(date, df=4)", scheduler="serial")
    effect = found.estimate[found.terms.index("party[T.b]")]
    assert found.documents == 239
    assert "1 empty documents are left out." in found.notes
    np.testing.assert_allclose(effect.sum(), 0.0, atol=1e-3)
    assert 0.3 < np.abs(effect).max() < 0.7
    assert (found.se > 0).all()
    for options in ({"scheduler": "threads", "workers": 1}, {"scheduler": "threads", "workers": 3}):
        again = effects(run / "run", "~ party + score + bs(date, df=4)", **options)
        assert again.estimate.tobytes() == found.estimate.tobytes()
        assert again.se.tobytes() == found.se.tobytes()


def test_clusters_and_periods__can_be_fields(run):
    found = effects(run / "run", "~ party", cluster="speech", scheduler="serial")
    assert found.clusters == 40
    assert found.df == 39
    periods = effects(run / "run", "~ `date:decade`", at=["date:decade"], posteriors="fit", scheduler="serial")
    assert periods.terms == ["date:decade=1990s", "date:decade=2000s"]
    assert any("taken as known" in note for note in periods.notes)


def test_shares__are_means_weighted_by_tokens(run):
    found = shares_by(run / "run", "party", posteriors="fit", scheduler="serial")
    assert found.terms == ["party=a", "party=b"]
    np.testing.assert_allclose(found.estimate.sum(axis=1), 1.0, atol=1e-6)
    coefficients = effects(run / "run", "~ party", posteriors="fit", scheduler="serial")
    # every text has twelve words
    np.testing.assert_allclose(
        np.abs(found.estimate[1] - found.estimate[0]), np.abs(coefficients.estimate[1]), atol=1e-9
    )
    sampled = shares_by(run / "run", "score", cluster="speech", scheduler="serial")
    assert sampled.terms[0] == "score=0"
    assert len(sampled.terms) == 5


def test_shares_over_time__match_the_periods(run):
    found = shares_over(run / "run", "year", posteriors="fit", scheduler="serial")
    model = Model(run / "run")
    periods = by_period(read_summary(model.folder, model.record).dates, "year")
    assert found.terms == [f"date:year={name}" for name in periods.names]
    np.testing.assert_allclose(found.estimate, periods.shares, atol=1e-6)
    assert (shares_over(run / "run", "year", scheduler="serial").se > 0).all()
    with pytest.raises(OptionError, match="did you mean 'year'"):
        shares_over(run / "run", "yaer")


def test_shares_over_time__have_clustered_errors_in_tables_plots_and_reports(run, tmp_path, capsys):
    for cluster in (None, "speech"):
        found = topic_shares(run / "run", period="decade", cluster=cluster, scheduler="serial")
        expected = shares_over(run / "run", "decade", cluster=cluster, scheduler="serial")
        np.testing.assert_array_equal(found.shares, expected.estimate)
        np.testing.assert_array_equal(found.errors, expected.se)
    assert "the same speech belong together" in topic_shares(run / "run", scheduler="serial").notes[-1]
    assert "the same speech" in " ".join(found.notes)
    words = ["plot", str(run / "run"), str(tmp_path / "time.svg"), "--what", "time", "--cluster", "speech"]
    assert main(words) == 0
    assert "the same speech" in capsys.readouterr().out
    assert main(["report", str(run / "run"), str(tmp_path / "report.html"), "--cluster", "speech"]) == 0
    assert "the same speech" in (tmp_path / "report.html").read_text()
    with pytest.raises(OptionError, match="did you mean 'speech'"):
        topic_shares(run / "run", cluster="spech")


def test_reports__have_sections_with_the_results_of_the_functions(run, tmp_path):
    page = tmp_path / "page.html"
    options = {"scheduler": "serial", "cluster": "speech"}
    report(
        run / "run", page, effects="~ party + bs(date, df=4)", words_by="party", words_over="decade", word_topics=[1],
        **options,
    )  # fmt: skip
    text = page.read_text()
    formula = "~ party + bs(date, df=4)"
    labels = effects(run / "run", formula, contrast=["party"], **options)
    figures = (float(100 * part[0, 1]) for part in (labels.estimate, labels.low, labels.high))
    assert "{:.3g} [{:.3g}, {:.3g}]".format(*figures) in text
    curve = effects(run / "run", formula, at=["date"], **options)
    assert f"percent along date, lowest {percent(curve.estimate[:, 0].min())}" in text
    sections = [text.index(f'<section id="{name}"') for name in ("effects", "words-by-group", "words-over-time")]
    assert sections == sorted(sections)
    assert "1990s</th>" in text
    asked = report(
        run / "run", effects="~ party * score", contrast=["party=b,a"], at=["score"], scheduler="serial"
    ).page
    assert "log-odds" not in asked
    assert "percent along score" in asked
    assert "words_over" not in asked


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effects": "~ prty"}, "effects: no field 'prty' (did you mean 'party'?)"),
        ({"effects": "~ party", "contrast": ["party=b,c"]}, "contrast: party: no document has the value 'c'"),
        ({"at": ["score"]}, "at: applies only to the section that `effects` adds"),
        ({"words_by": "prty"}, "words_by: no field 'prty' (did you mean 'party'?)"),
        ({"words_over": "yaer"}, "words_over: "),
        ({"words_by": "party", "word_topics": [7]}, "word_topics: 7: there is no such topic"),
        ({"word_topics": [1]}, "word_topics: applies only to the sections that `words_by` and `words_over` add"),
    ],
)
def test_reports_with_wrong_fields__are_refused_in_one_line_without_a_file(run, tmp_path, options, message):
    with pytest.raises(OptionError) as caught:
        report(run / "run", tmp_path / "page.html", scheduler="serial", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "page.html").exists()


WRONG_INPUTS = {
    "effects": {"effects": "~ party +"},
    "contrast": {"contrast": ["party=b,c"]},
    "at": {"at": ["scroe"]},
    "permute": {"permutations": 3, "permute": "decade"},
    "errors": {"errors": "classical", "link": "logit", "cluster": None},
    "words_by": {"words_by": "prty"},
    "words_over": {"words_over": "yaer"},
    "word_topics": {"word_topics": [1, 7]},
    "cluster": {"effects": None, "cluster": "spech"},
    "min_share": {"min_share": 0.1},
    "texts": {"texts": ["missing.csv"]},
}


@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_reports__refuse_invalid_input_before_anything_is_estimated(run, tmp_path, monkeypatch, wrong):
    def refused(*_, **__):
        raise AssertionError("estimated before all inputs were checked")

    for function in (
        "regression.Regression.sample",
        "regression.Regression.solve",
        "group_words._sums",
        "words_over._tokens",
    ):
        monkeypatch.setattr(f"collapsium.pipeline.analysis.{function}", refused)
    options = {"effects": "~ party + score", "words_by": "party", "words_over": "year", "cluster": "speech"}
    with pytest.raises(CollapsiumError) as caught:
        report(run / "run", tmp_path / "page.html", scheduler="serial", **options | WRONG_INPUTS[wrong])
    assert wrong in str(caught.value) or wrong == "texts"
    assert "\n" not in str(caught.value)


def test_shares_over_a_column__follow_the_first_dates_of_its_values(run):
    found = topic_shares(run / "run", period="party", scheduler="serial")
    expected = shares_over(run / "run", "party", scheduler="serial")
    assert sorted(found.names) == sorted(values["party"] for values in expected.values)
    assert found.starts == sorted(found.starts)
    assert found.ends[:-1] == found.starts[1:]
    assert found.documents.sum() == expected.documents
    rows = [expected.values.index({"party": name}) for name in found.names]
    np.testing.assert_array_equal(found.shares, expected.estimate[rows])
    with pytest.raises(OptionError, match="or a field of labels; found 'partly'.*'party'"):
        topic_shares(run / "run", period="partly")


def test_shares_of_groups_with_few_clusters__borrow_the_variance_of_others():
    generator, sizes = np.random.default_rng(0), (1, 2, 5, 5, 20)
    hits, counted = 0, 0
    for _ in range(20):
        level = generator.normal(-1.0, 0.8, len(sizes))
        rows = [
            (generator.beta(6 * mean, 6 * (1 - mean)), f"g{group}", f"{group}-{cluster}")
            for group, size in enumerate(sizes)
            for cluster in range(size)
            for mean in [1 / (1 + np.exp(-level[group] - generator.normal(0.0, 0.5)))]
            for _ in range(8)
        ]
        theta, groups, clusters = (np.array(column) for column in zip(*rows, strict=True))
        source = TableSource(theta[:, np.newaxis], {"g": groups.astype(object), "c": clusters.astype(object)}, 50)
        options = EffectOptions(at=("g",), cluster="c")
        regression = Regression(source, SerialExecutor(), options, silent, weigh=True)
        regression.prepare(check_formula("~ 0 + C(g)"))
        found = regression.estimates(np.arange(1), ["a"])[0]
        draws = 1 / (1 + np.exp(-level - generator.normal(0.0, 0.5, (500, len(sizes)))))
        hits += int(((found.low[:, 0] <= draws.mean(axis=0)) & (draws.mean(axis=0) <= found.high[:, 0])).sum())
        counted += len(sizes)
    assert hits / counted > 0.88  # nominally 95%; groups of a single cluster would have no variance by themselves


def test_sampled_posteriors__widen_the_intervals(run):
    sampled = effects(run / "run", "~ party", scheduler="serial")
    known = effects(run / "run", "~ party", posteriors="fit", scheduler="serial")
    assert (sampled.se[1] > known.se[1]).all()
    assert (np.abs(sampled.estimate[1]) > np.abs(known.estimate[1]) * 0.95).all()


def test_stored_posteriors__are_reused_for_the_same_formula_and_checked(run, tmp_path, monkeypatch):
    copied = tmp_path / "run"
    shutil.copytree(run / "run", copied)
    options = {"scheduler": "serial", "corpus": run / "corpus"}
    first = effects(copied, "~ party", store=True, **options)
    assert verify(copied).broken == []

    def fail(*_):
        raise AssertionError("sampled again")

    monkeypatch.setattr(posteriors, "_sampled", fail)
    again = effects(copied, "~ party", contrast=["party"], **options)
    np.testing.assert_array_equal(again.coefficients, first.coefficients)
    np.testing.assert_array_equal(again.covariances, first.covariances)
    for formula, changed in (("~ score", {}), ("~ party", {"seed": 1})):
        with pytest.raises(AssertionError, match="sampled again"):
            effects(copied, formula, **changed, **options)
    with pytest.raises(OptionError, match="store: applies only to sampled `posteriors`"):
        effects(copied, "~ party", store=True, posteriors="fit", **options)
    [damaged] = copied.glob("**/posteriors/*/00000/mean/c.0.0")
    damaged.write_bytes(b"other")
    with pytest.raises(DamagedError, match="the bytes do not have their digest"):
        effects(copied, "~ party", **options)


def test_commands__print_tables_and_json(run, capsys):
    assert (
        main(["effects", str(run / "run"), "--formula", "~ party", "--contrast", "party", "--scheduler", "serial"]) == 0
    )
    printed = capsys.readouterr().out
    assert "party: b - a" in printed or "party: a - b" in printed
    assert "239 documents; errors robust (HC1)" in printed
    assert main(["effects", str(run / "run"), "--formula", "~ party", "--json", "--scheduler", "serial"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {*record["rows"][0]} == {"topic", "words", "term", "estimate", "se", "low", "high", "p", "p_adjusted"}
    assert main(["effects", str(run / "run"), "--formula", "~ prty", "--scheduler", "serial"]) == 2
    assert "no field 'prty' (did you mean 'party'?)" in capsys.readouterr().err


def test_families_without_dirichlet_proportions__are_reported_to_treat_proportions_as_known(run):
    fit(run / "corpus", run / "labels", family="labeled-lda", iterations=5, scheduler="serial")
    found = effects(run / "labels", "~ score", scheduler="serial")
    assert any("The family labeled-lda has no posteriors of documents" in note for note in found.notes)


def test_curves_of_a_group_beyond_its_documents__do_not_flatten_the_others():
    theta, frame, _ = table(10, 200)
    frame["year"] = np.where(frame.group == "a", 2000.0 + 0.05 * (frame.year - 2000.0), frame.year)
    found = table_effects(theta, frame, "~ group * poly(year, 2)", at=["year=1980,1990,2000,2010", "group"])
    assert found.estimate.max() > 2.0
    for panel in effects_figure(found).axes:
        bottom, top = panel.get_ylim()
        assert -6.0 < bottom < 0.0
        assert 0.0 < top <= 105.0


def test_plots__are_forest_plots_and_curves(run, tmp_path, capsys):
    forest = effects(run / "run", "~ party + score", posteriors="fit", scheduler="serial")
    assert len([panel for panel in effects_figure(forest).axes if panel.get_visible()]) == 2
    curves = effects(run / "run", "~ party * score", at=["score", "party"], posteriors="fit", scheduler="serial")
    figure = effects_figure(curves, topics=[1])
    assert len(figure.axes[0].lines) == 2
    assert figure.axes[0].get_xlabel() == "score"
    with pytest.raises(OptionError, match="no such topic"):
        effects_figure(curves, topics=[9])
    for name in ("a.svg", "b.png"):
        path = tmp_path / name
        words = ["effects", str(run / "run"), "--formula", "~ party", "--posteriors", "fit", "--picture", str(path)]
        assert main(words) == 0
        assert path.stat().st_size > 1000
    assert "b.png: estimates with intervals" in capsys.readouterr().out


def test_several_values_of_a_field__are_refused(tmp_path):
    rows = [{"id": f"d{n}", "text": "apple pear fig", "tag": ["a", "b"] if n == 3 else ["a"]} for n in range(9)]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ingest(tmp_path / "texts.jsonl", tmp_path / "corpus", labels=["tag"], min_documents=1)
    fit(tmp_path / "corpus", tmp_path / "run", family="lda", topics=2, iterations=2, scheduler="serial")
    with pytest.raises(InputError, match="document 4: several values of 'tag'"):
        effects(tmp_path / "run", "~ tag", scheduler="serial")
