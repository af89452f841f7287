"""Refuse, as part of `make lint`, what a machine can find of an unclear manner: `python -m tests.language [FOLDER...]`.

Everywhere, tests included: pronouns in the place of nouns, sentences that begin with `Of`, words that are not the field's, and loop
variables called `one`. In the packages also first lines of docstrings that are not sentences about what the caller gets, names that are not the
field's, and functions longer than a screen.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("pipeline", "workers", "storage")
TESTS = "tests"
DOCUMENTS = (
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "deploy/DEPLOY.md",
)
GENERATED = re.compile(r"docs/(auto_\w+|reference/(api|commands|families|tables))/")
"""Folders of pages that the build of the site makes."""
SCREEN_LINES = 60
"""Lines of a function without its docstring."""

OPENINGS = re.compile(r"(What|Who|Whose|Whom|Where|How|Whether|Which|When|Why)\b")
NAMES = {
    "asked": "request",
    "beside": "side_files, metadata",
    "cellwork": "experiment runner",
    "chances": "predictive probabilities",
    "choosing": "active-set selection",
    "classing": "classification",
    "completing": "document completion",
    "entering": "initialisation",
    "feeding": "event feed",
    "found": "the name of what it holds",
    "given": "options, arguments, or what it holds",
    "glancing": "topic snapshots",
    "globals": "global_state",
    "heard": "statistics",
    "indocument": "in_document",
    "judging": "acceptance",
    "keeper": "checkpointer",
    "keeping": "checkpoints",
    "kept": "saved, retained",
    "listed": "active",
    "opening": "open",
    "parting": "leaf split",
    "patience": "timeout",
    "picturing": "run status",
    "placing": "placement",
    "planted": "ground_truth",
    "planting": "initialisation",
    "portions": "chunks",
    "said": "the name of what it holds",
    "saying": "formatting",
    "settle": "fold_in",
    "settled": "folded_in",
    "shelf": "spill",
    "shelved": "spilled",
    "supplying": "source tracking",
    "tells": "reports",
    "told": "statistics, report",
    "wanted": "request",
    "whole": "complete",
    "workbench": "job context",
}
PRONOUNS = {"few", "here", "home", "homes", "many", "ours", "own", "such", "theirs", "there"}
"""Words that say nothing of what a name holds, unless others are joined to them."""
CONDITIONS = {"given", "given_labels"}
"""Names of what a probability is conditional on, as in p(topic | label): the field's word there."""
PROSE = re.compile(
    r"\b(settle[sd]?|settling|told|tells|heard of|shelf|shelved|indocument|keeper|cellwork|patience|parting|planted|planting)\b",
    re.I,
)
VAGUE = re.compile(r"\b(?:that|those) of\b", re.I)  # Stands for a noun that the reader can be given
FRONTED = re.compile(r"""(?:^[\s#*>|-]*|[.!?:|] |")Of (?!course\b)""")
WORDS = {
    r"superfluous|barren": "redundant, empty",
    r"power of (?:the|its|their) (?:weights|responsibilities)": "inverse temperature",
    r"cooling": "tempering",
    r"company of (?:a|each|its|the) words?": "contexts, co-occurrences",
    r"(?:no longer|not) heard from|signs? of life": "unresponsive",
    r"strangers?|anyone (?:may have|has) written": "untrusted",
    r"flatten(?:ed|s|ing)? (?:the )?(?:weights|responsibilities|segments|corpus|corpora)": "tempered; explode",
    r"(?:files?|folders?|runs?|corpus|corpora) lies?": "is stored, are stored",
}
"""Words of prose that are not the field's, and what the field says."""
OWN = re.compile(r"\bof (?:its|their|our|one's|your) own\b", re.I)  # Translated: separate, different, or no word at all
FOREIGN = {re.compile(rf"\b(?:{words})\b", re.I): rather for words, rather in WORDS.items()}


def docstrings_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def names_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of all that a module defines or assigns."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake or camel case, in lower case."""
    return re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())


def comments_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def loop_variables_of(tree: ast.AST) -> Iterator[ast.Name]:
    """Yield the variables of all loops and comprehensions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from (name for name in ast.walk(node.target) if isinstance(name, ast.Name))


def manner_of_module(text: str, tree: ast.AST) -> Iterator[str]:
    """Yield a line for each fault that tests may not have either."""
    yield from unclear_sentences(text)
    for first, prose in (*docstrings_of(tree), *comments_of(text)):
        yield from foreign_words(prose, first)
    for name in loop_variables_of(tree):
        if name.id == "one":
            yield f"{name.lineno}: 'one' as a loop variable; name it after what it holds"


def faults_of_test(path: Path) -> Iterator[str]:
    """Yield a line for each fault of a module of tests."""
    text = path.read_text(encoding="utf-8")
    yield from manner_of_module(text, ast.parse(text))


def faults_of_module(path: Path) -> Iterator[str]:
    """Yield a line for each fault of a module of the packages."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    yield from manner_of_module(text, tree)
    for line, docstring in docstrings_of(tree):
        first = docstring.splitlines()[0]
        if OPENINGS.match(first):
            yield f"{line}: a docstring begins with {first.split()[0]!r}; state what the caller gets: {first}"
        for word in PROSE.findall(docstring):
            yield f"{line}: {word!r} in a docstring"
    for line, name in names_of(tree):
        if name in PRONOUNS:
            yield f"{line}: {name!r}; rather the name of what it holds"
        for word in words_of(name):
            if word in NAMES and name not in CONDITIONS:
                yield f"{line}: {name!r} has {word!r}; rather {NAMES[word]}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
            lines = (node.end_lineno or 0) - first.lineno + 1 + node.body[0].lineno - node.lineno
            if lines > SCREEN_LINES:
                yield f"{node.lineno}: {node.name!r} has {lines} lines, more than a screen of {SCREEN_LINES}"


def unclear_sentences(text: str) -> Iterator[str]:
    """Yield a line for each pronoun in the place of a noun, and for each sentence that begins with `Of`."""
    for number, line in enumerate(text.splitlines(), 1):
        for words in VAGUE.findall(line):
            yield f"{number}: {words!r} in the place of a noun; repeat it"
        if FRONTED.search(line):
            yield f"{number}: a sentence begins with 'Of'; begin with its subject"


def foreign_words(text: str, first: int = 1) -> Iterator[str]:
    """Yield a line for each word that is not the field's in some lines of prose."""
    for number, line in enumerate(text.splitlines(), first):
        for pattern, rather in FOREIGN.items():
            for words in pattern.findall(line):
                yield f"{number}: {words!r} in prose; rather {rather}"


def faults_of_document(path: Path) -> Iterator[str]:
    """Yield a line for each word in a page that is not the field's, or stands for a noun."""
    text = path.read_text(encoding="utf-8")
    yield from unclear_sentences(text)
    yield from foreign_words(text)
    for number, line in enumerate(text.splitlines(), 1):
        for words in (*PROSE.findall(line), *OWN.findall(line)):
            yield f"{number}: {words!r} in prose"


def faults(folders: list[str]) -> Iterator[str]:
    """Yield the faults of all modules and pages under some folders."""
    for folder in folders:
        top = ROOT / folder
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            of_module = faults_of_module if name.startswith(PRODUCT) else faults_of_test
            reader = {".py": of_module, ".md": faults_of_document, ".rst": faults_of_document}.get(path.suffix)
            if reader and path.is_file() and not GENERATED.match(name):
                yield from (f"{name}:{fault}" for fault in reader(path))


def main() -> None:
    """Print the faults; exit with 1 if there are any."""
    lines = list(faults(sys.argv[1:] or [*PRODUCT, TESTS, *DOCUMENTS]))
    print("\n".join([*lines, f"{len(lines)} faults"]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
