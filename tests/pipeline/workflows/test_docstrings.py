import ast

from collapsium.pipeline import Corpus
from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.workflows.demo.demo import label_use
from collapsium.pipeline.workflows.demo.docstrings import Module, docstrings, modules, sections
from collapsium.storage.building.ingest import ingest
from collapsium.storage.building.vocabulary_cuts import Cuts
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.text import Text, TextSource

SOURCE = '''"""Module text."""
import os
raise RuntimeError("never imported")

class Public:
    """Class text.

    Parameters
    ----------
    x : int
        Something.
    """

    def method(self):
        """Method text.

        Returns:
            Nothing.
        """

    def _private(self):
        """Hidden."""

def function():
    def inner():
        """Hidden too."""
'''


def test_docstrings__are_read_without_importing(tmp_path):
    path = tmp_path / "m.py"
    path.write_text(SOURCE)
    found = dict(docstrings(Module("p", "p.m", path)))
    assert sorted(found) == ["p.m", "p.m.Public", "p.m.Public.method"]
    assert sections(found["p.m.Public"]) == ["Class text.", "Parameters\n----------\nx : int\n    Something."]
    assert sections(found["p.m.Public.method"]) == ["Method text.", "Returns:\n    Nothing."]
    assert sections(found["p.m"]) == ["Module text."]
    path.write_text("def broken(:")
    assert list(docstrings(Module("p", "p.m", path))) == []


def test_modules__are_public_and_of_what_is_installed():
    found = modules()
    packages = {module.package for module in found}
    assert {"python", "numpy", "scipy", "dask", "pyarrow", "numba", "zarr", "distributed"} <= packages
    assert len(found) > 1000
    assert not [m.name for m in found if any(part.startswith(("_", "test_")) for part in m.name.split("."))]
    path = next(module.path for module in found if module.name == "json.decoder")
    assert ast.get_docstring(ast.parse(path.read_bytes())) == dict(docstrings(Module("python", "j", path)))["j"]


def test_labels__segments_and_titles_are_kept_and_topics_know_their_packages(tmp_path):
    def texts(path, options):
        for n in range(30):
            body = ("array shape dtype", "array axis") if n % 2 else ("worker scheduler task", "task future")
            package = "numpy" if n % 2 else "dask"
            yield Text(f"{package}.{n}", body, title=f"t{n}", labels=(("package", package), ("category", "x")))

    source = TextSource([str(tmp_path)], ReadOptions(), texts, structured=True)
    ingest(source, tmp_path / "c", cuts=Cuts(min_documents=2))
    corpus = Corpus(tmp_path / "c")
    assert set(corpus.manifest.fields) == {"title", "labels", "segments"}
    documents = corpus.references[0].documents()
    assert documents.extras["segments"].to_pylist()[:2] == [[3, 2], [3, 2]]
    assert documents.extras["labels"].to_pylist()[0][0] == {"field": "package", "value": "dask"}
    fit(tmp_path / "c", tmp_path / "run", family="lda", topics=2, beta=1.0, iterations=30, scheduler="serial")
    uses = label_use(tmp_path / "run", tmp_path / "c", "package")
    for use in uses:
        words = {word for word, _ in use.topic.words[:3]}
        assert use.labels[0][0] == ("numpy" if "array" in words else "dask")
        assert use.labels[0][1] > 0.9
