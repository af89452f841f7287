"""The report of a run in Chromium: its numbers are the run's, it asks for nothing, and it can be read."""

import json

import numpy as np
import pyarrow as pa
import pytest

from collapsium.pipeline import Model, fit, ingest, report, topic_shares, topics
from collapsium.pipeline.analysis.expected_topics import by_lift
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import read_summary

HOSTILE = [
    "<script>window.hit=1</script>",
    "</script><img src=x onerror=window.hit=1>",
    '" onload="window.hit=1',
    "{{ 7 * 7 }}",
    "&amp;",
    "\u2028\x1b[31m",
    "很长的词",
    "a" * 80,
]
WIDTHS = (1280, 400)


def hostile_corpus(place, *, seed, documents=90, words=40, topics=6):
    """Documents whose words, titles and labels try to be more than text."""
    generator = np.random.default_rng(seed)
    phi = np.random.default_rng(5).dirichlet(np.full(words, 0.08), size=topics)
    rows = [generator.multinomial(40, generator.dirichlet(np.full(topics, 0.2)) @ phi) for _ in range(documents)]
    vocabulary = [*HOSTILE, *(f"word{number}" for number in range(words - len(HOSTILE)))]
    pairs = [np.flatnonzero(row) for row in rows]
    labels = [
        [{"field": "kind", "value": HOSTILE[n % 3]}, {"field": "year", "value": str(1990 + n % 4)}]
        for n in range(documents)
    ]
    found = Documents(
        pa.array([f"<b>{number}</b>" for number in range(documents)]),
        np.concatenate([[0], np.cumsum([pair.size for pair in pairs])]).astype(np.int64),
        np.concatenate(pairs).astype(np.int32),
        np.concatenate([row[pair] for row, pair in zip(rows, pairs, strict=True)]).astype(np.int32),
        {
            "title": pa.array([HOSTILE[n % len(HOSTILE)] for n in range(documents)]),
            "date": pa.array(
                [HOSTILE[n % 3] if n % 30 == 7 else f"{2000 + n % 2}-{1 + n % 12:02}" for n in range(documents)]
            ),
            "labels": pa.array(labels, LABELS),
        },
    )
    with created(Folder(place)) as folder:
        writer = CorpusWriter(folder, words, 1000)
        writer.add(found)
        writer.finish(vocabulary)
    return str(place)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    return hostile_corpus(place / "train", seed=1), hostile_corpus(place / "heldout", seed=2), place


@pytest.fixture(scope="module")
def reported(corpora):
    """An ensemble of three fits, and its report."""
    train, heldout, place = corpora
    options = {"topics": 6, "order": 2, "learn": ["alpha"], "iterations": 12}
    fit(train, place / "run", family="lda", heldout=heldout, restarts=3, **options)
    report(place / "run", place / "run.html")
    return place / "run", place / "run.html"


@pytest.fixture(scope="module")
def tree(corpora):
    """A tree, and its report."""
    train, heldout, place = corpora
    fit(train, place / "tree", family="gibbs-ncrp", heldout=heldout, iterations=10)
    report(place / "tree", place / "tree.html")
    return place / "tree", place / "tree.html"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["reported", "tree"])
def test_report__is_clean_and_readable(visits, request, which, width, dark):
    _, page = request.getfixturevalue(which)
    seen = visits(page, width=width, dark=dark)
    seen.picture(f"report-{which}-{width}{'-dark' if dark else ''}")
    seen.require_clean()
    assert len(seen.requests) == 1
    assert seen.overflow() == []
    assert min(size for size, _ in seen.sizes()) >= 11
    assert seen.page.evaluate("window.hit") is None
    assert seen.page.evaluate("getComputedStyle(document.body).fontSize") == "16px"
    ink, paper = seen.page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert contrast(ink, paper) > 7


def contrast(text, background):
    """The contrast of two colours, rgb(...), as WCAG has it."""
    lights = []
    for colour in (text, background):
        parts = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_topics__are_the_models(visits, reported):
    run, page = reported
    seen, found = visits(page), topics(run, 8)
    rows = seen.page.locator("#table tbody tr")
    assert rows.count() == len(found) == seen.page.locator(".map circle").count()
    for row, topic in zip(rows.all(), found, strict=True):
        cells = row.locator("th, td").all_inner_texts()
        assert cells[:2] == [str(topic.id), f"{topic.share:.1%}"]
        assert cells[3] == f"{topic.stability:.2f}"
        # A mean shows in how many members each topic was found.
        assert cells[4] == str(topic.support)
        expected = " ".join(word for word, _ in topic.words).replace("\u2028\x1b", "\ufffd\ufffd")
        assert " ".join(cells[5].split()) == " ".join(expected.split())


def test_charts__show_the_events(visits, reported):
    run, page = reported
    seen, members = visits(page), [Run(run).in_member(number) for number in range(3)]
    by_member = [[event for event in member.events() if event["event"] == "iteration"] for member in members]
    for name in ("score", "objective", "alpha"):
        chart = seen.page.locator(f"#chart-{name}")
        lines = chart.locator("path.line").evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
        assert [len(line.split()) for line in lines] == [12] * 3
        last = [events[-1][name] for events in by_member]
        shown = chart.locator(".last").inner_text().replace("\N{MINUS SIGN}", "-").replace(",", "").split()
        assert [float(shown[0]), float(shown[2]), shown[-1]] == [
            pytest.approx(min(last), rel=1e-3),
            pytest.approx(max(last), rel=1e-3),
            "12",
        ]
    table = seen.page.locator("#stability table").last.locator("tbody tr")
    assert [row.locator("td").first.inner_text() for row in table.all()] == [
        str(member.record()["seed"]) for member in members
    ]


def test_panel__follows_choices_and_the_slider(visits, reported):
    run, page = reported
    seen, found, model = visits(page), topics(run, 40), Model(run)
    summary = read_summary(model.folder, model.record)
    seen.page.locator("#table tbody a").nth(2).click()
    panel = seen.page.locator("#panel")
    assert panel.locator("h3").inner_text().startswith(f"Topic {found[2].id}:")
    assert seen.page.evaluate("location.hash") == f"#topic-{found[2].id}"
    for weight in (0.0, 0.6, 1.0):
        seen.page.locator("#weight").evaluate(
            "(one, value) => { one.value = value; one.dispatchEvent(new Event('input')); }", weight
        )
        shown = panel.locator("table.relevant tbody tr td:first-child").all_inner_texts()
        assert [" ".join(word.split()) for word in shown] == relevant(model, found[2], weight)[: len(shown)]
        assert len(shown) >= 5
    examples = next(topic for topic in summary.topics if topic.id == found[2].id).examples
    titles = panel.locator(".examples > li > p:first-child").all_inner_texts()
    expected = [summary.examples[example.document] for example in examples]
    assert [title.split() for title in titles] == [plain(example.title or example.id).split() for example in expected]
    panel.locator("button").nth(1).click()
    assert panel.locator("h3").inner_text().startswith(f"Topic {found[3].id}:")
    seen.require_clean()


def plain(text):
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def relevant(model, topic, weight):
    """Words of a topic by falling relevance, from all probabilities."""
    overall = model.vocabulary.tokens / model.vocabulary.tokens.sum()
    names = model.vocabulary.words
    used = {word for word, count in zip(names, overall, strict=True) if count}
    kept = [
        (weight * np.log(p) + (1 - weight) * np.log(p / overall[names.index(word)]), word)
        for word, p in topic.words
        if word in used and p * topic.share * model.vocabulary.tokens.sum() >= 0.5
    ]
    return [" ".join(plain(word).split()) for _, word in sorted(kept, key=lambda item: -item[0])]


def test_labels__have_mean_proportions_and_lift(visits, reported):
    run, page = reported
    seen, model = visits(page), Model(run)
    summary = read_summary(model.folder, model.record)
    year = next(field for field in summary.fields if field.field == "year")
    rows = seen.page.locator("#labels table").nth(1).locator("tbody tr")
    assert rows.count() == len(year.values) == 4
    for row, value in zip(rows.all(), year.values, strict=True):
        assert row.locator("th").inner_text() == value.value
        assert row.locator("td").first.inner_text() == str(value.documents)
        best = by_lift(value.proportions, {topic.id: topic.mean for topic in summary.topics}, 1)[0]
        shown = row.locator("li").first.inner_text()
        assert f" {best.share:.1%} ± " in shown
        assert shown.endswith(f"% ×{best.lift:.1f}")


def test_time__shows_shares_by_period(visits, reported):
    run, page = reported
    seen, found = visits(page), topic_shares(run)
    charts = seen.page.locator("#time figure")
    assert charts.count() == 7  # all topics, and documents
    for column in range(6):
        topic = found.topics[column]
        marks = seen.page.locator(f"#time-{topic} .mark title").all_text_contents()
        assert [mark.split()[1] for mark in marks] == [f"{share:.1%}" for share in found.shares[:, column]]
    bars = seen.page.locator("#time-documents rect title").all_text_contents()
    assert bars == [f"{name}: {count}" for name, count in zip(found.names, found.documents, strict=True)]
    assert "cannot be read" in seen.page.locator("#time .aside").all_inner_texts()[0]
    seen.page.locator(f"#time-{found.topics[0]} a").click()
    assert seen.page.locator("#panel h3").inner_text().startswith(f"Topic {found.topics[0]}:")
    seen.require_clean()


def test_examples__have_passages_with_marked_words(visits, corpora):
    _, _, place = corpora
    if not (place / "texts.html").exists():
        lines = [
            {"id": f"d{n}", "text": f"{HOSTILE[n % 3]} " + " ".join(["wheat", "bank"][n % 2 :][:1] * 9 + ["<b>rate"])}
            for n in range(30)
        ]
        (place / "texts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
        ingest(place / "texts.jsonl", place / "texts")
        fit(place / "texts", place / "texts-run", family="lda", topics=2, iterations=5)
        report(place / "texts-run", place / "texts.html", texts=place / "texts.jsonl")
    for width in WIDTHS:
        seen = visits(place / "texts.html", width=width)
        assert seen.page.locator(".snippet").count() == 3
        assert set(seen.page.locator(".snippet mark").all_inner_texts()) & {"wheat", "bank"}
        assert "<b>" in seen.page.locator(".snippet").first.inner_text()
        assert seen.page.evaluate("window.hit") is None
        assert seen.overflow() == []
        seen.require_clean()


def test_tree__is_drawn_and_listed(visits, tree):
    run, page = tree
    seen, found = visits(page), topics(run, 5)
    drawn = seen.page.locator("svg.tree a:not(.folded)").evaluate_all(
        "all => all.map(one => Number(one.dataset.topic))"
    )
    assert drawn == [topic.id for topic in found if topic.id in drawn]
    assert len(drawn) == len(found) or seen.page.locator("svg.tree a.folded").count()
    listed = seen.page.locator(".branches a").evaluate_all("all => all.map(one => Number(one.dataset.topic))")
    assert sorted(listed) == sorted(topic.id for topic in found)
    inside = """all => all.every(one => {
        const card = one.querySelector('.card').getBBox();
        return [...one.querySelectorAll('text')].every(text => text.getBBox().x + text.getBBox().width <= card.x + card.width + 1);
    })"""
    assert seen.page.locator("svg.tree a").evaluate_all(inside)


def test_tree__opens_by_the_keyboard_and_is_short(visits, corpora, tree):
    _, _, place = corpora
    if not (place / "folded.html").exists():
        report(tree[0], place / "folded.html", levels=1)
    seen = visits(place / "folded.html")
    shown = seen.page.locator(".branches a:visible")
    assert shown.count() == 1
    seen.page.locator(".branches summary").first.focus()
    seen.page.keyboard.press("Enter")
    assert shown.count() > 1
    assert visits(tree[1]).page.evaluate("document.getElementById('tree').offsetHeight") < 2000
    seen.require_clean()


def test_pages__of_many_topics_are_turned_and_searched(visits, corpora):
    train, _, place = corpora
    if not (place / "many.html").exists():
        fit(train, place / "many", family="lda", topics=60, iterations=2)
        report(place / "many", place / "many.html")
    seen = visits(place / "many.html")
    shown = seen.page.locator("#table tbody tr:visible")
    assert shown.count() == 25
    seen.page.locator("#next").click()
    assert seen.page.locator("#page").inner_text().startswith("Page 2 of")
    seen.page.locator("#find").fill("word7")
    texts = shown.all_inner_texts()
    assert texts
    assert all("word7" in text for text in texts)
    data = json.loads(seen.page.locator("#data").text_content())
    assert len(data["topics"]) == len(topics(place / "many", 1))
    seen.require_clean()


OVERLAPS = """all => {
    const boxes = all.filter(one => one.getClientRects().length).map(one => one.getBoundingClientRect());
    const out = [];
    boxes.forEach((a, n) => boxes.slice(0, n).forEach((b, m) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 0.5 && tall > 0.5) out.push([n, m]);
    }));
    return [boxes.length, out];
}"""
# How far what is drawn stays from the four edges of the picture, in its own units, and the picture's size.
MARGINS = """svg => {
    const frame = svg.viewBox.baseVal, shapes = [...svg.querySelectorAll("circle, rect, text")].filter(one => one.getClientRects().length);
    const boxes = shapes.map(one => one.getBBox());
    return [Math.min(...boxes.map(box => box.x)), Math.min(...boxes.map(box => box.y)),
        frame.width - Math.max(...boxes.map(box => box.x + box.width)),
        frame.height - Math.max(...boxes.map(box => box.y + box.height))];
}"""


@pytest.fixture(scope="module")
def maps(corpora):
    """Reports of many topics, and of labels and topics."""
    train, _, place = corpora
    for name, options in (("map", {"family": "lda", "topics": 60}), ("labels", {"family": "hdsp", "topics": 20})):
        fit(train, place / f"maps-{name}", iterations=3, **options)
        report(place / f"maps-{name}", place / f"maps-{name}.html")
    return place


@pytest.mark.parametrize("width", [1280, 950, 400])
def test_map__fills_its_frame_and_texts_do_not_collide(visits, reported, maps, width):
    for page in (reported[1], maps / "maps-map.html", maps / "maps-labels.html"):
        seen = visits(page, width=width)
        for picture in seen.page.locator(".map svg, svg.together").all():
            texts, meeting = picture.locator("text").evaluate_all(OVERLAPS)
            assert texts > 5
            assert meeting == []
            margins = picture.evaluate(MARGINS)
            assert min(margins) >= 0
            assert max(margins) <= 16
            inside = picture.locator("circle").evaluate_all("all => all.every(one => one.getBBox().width > 0)")
            assert inside
        assert min(size for size, _ in seen.sizes()) >= 10.9
        assert seen.overflow() == []
