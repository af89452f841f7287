"""Design rows of documents: formulas of their fields, checked before anything is evaluated.

A formula is untrusted, and formulaic evaluates formulas as Python. So it is split into tokens first: only
numbers, operators, the functions of `FUNCTIONS` and names of fields pass, and each name is replaced by a placeholder,
so that what is evaluated contains no other name.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.labels import DocumentRows
from collapsium.storage.corpus.list_columns import labels_of
from collapsium.storage.corpus.parquet import LABEL_COLUMN, SEGMENTS
from collapsium.storage.errors import DamagedError, InputError, MissingError, OptionError, near
from collapsium.storage.readers.texts.fields import is_missing
from collapsium.workers.ingest.dates import EPOCH, hours_of, read_date
from collapsium.workers.periods import is_period, moment, period_of

if TYPE_CHECKING:
    import formulaic
    import pandas as pd

Floats = npt.NDArray[np.float64]
Values = npt.NDArray[np.generic]  # A field of documents: float64 with NaN, or objects, strings and None

DATE = "date"
MISSING = "(missing)"  # Level of documents without a label
INTERCEPT = "Intercept"

# Functions of formulas: bases of one field, whose numbers are small, and functions of numbers
BASES = ("bs", "cr", "cs", "poly")
NUMERIC = (*BASES, "I", "center", "exp", "log", "log10", "log2", "scale", "sqrt")
FUNCTIONS = (*NUMERIC, "C")
KEYWORDS = ("df", "degree", "knots")
MAX_FORMULA = 2000  # Characters of a formula
MAX_PRODUCTS = 6  # Operators `*` of a formula, each of which may double the number of terms
MAX_POWER = 4  # Largest exponent
MAX_BASIS = 50  # Largest number of columns of a basis
MAX_COLUMNS = 300  # Columns of a design, whose square is summed for each topic
MAX_REFERENCE = 20_000  # Rows from which knots and scales are computed; of larger corpora these are quantiles
MAX_DISTINCT = 1 << 16  # Largest number of distinct numbers of a field; further ones are rounded
CONSTANT = 1e-12  # Variance, relative to the mean square, up to which a column is constant
WELL_CONDITIONED = 1e4  # Condition of scaled columns up to which they need no other basis, and indicators stay sparse
COLLINEAR = 1e-9  # Share of a column's variance that the columns before it must leave over

_TOKEN = re.compile(
    r"`(?P<quoted>[^`]+)`|(?P<name>[^\W\d]\w*)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<operator>\*\*|[-+*/:^(),=\[\]])|(?P<space>\s+)"
)
_CURVE = re.compile(r"\b((?:bs|cr|cs|poly)\([^()]*\))\[[^\]]*\]")  # Column of a basis, as in bs(year, df=5)[2]
_PLACEHOLDER = re.compile(r"zz(\d+)zz")
_MARKS = re.compile(r"\x1b\[[0-9;]*m|[⧛⧚]")  # Colours and brackets with which formulaic marks a place in a formula
_CENTRED = ", constraints='center'"  # Natural splines sum to one, as the intercept does


@dataclass(frozen=True)
class CheckedFormula:
    """A formula with placeholders for fields."""

    text: str  # As it was written
    coded: str  # With the placeholder ``zz0zz`` for the first of `fields`, and so on
    fields: tuple[tuple[str, bool | None], ...]  # Name, and whether it is a number; None if either will do

    @property
    def names(self) -> list[str]:
        """Names of the fields."""
        return list(dict.fromkeys(name for name, _ in self.fields))


def check_formula(text: str) -> CheckedFormula:
    """Return a formula with placeholders for its fields; `OptionError` for whatever is not allowed."""
    if not isinstance(text, str):
        raise OptionError(f"expected a formula such as ~ party, found {reprlib.repr(text)}", "formula")
    if len(text) > MAX_FORMULA:
        raise OptionError(f"expected a formula of at most {MAX_FORMULA:,} characters, such as ~ party", "formula")
    body = text.strip().removeprefix("~")
    tokens, place = [], 0
    while place < len(body):
        match = _TOKEN.match(body, place)
        if match is None:
            hint = "; names with other characters are written in backquotes, `like this`" if body[place] == "." else ""
            raise OptionError(f"{text!r}: {body[place]!r} is not allowed in a formula{hint}", "formula")
        if match.lastgroup != "space":
            tokens.append((str(match.lastgroup), match[0] if match.lastgroup != "quoted" else match["quoted"]))
        place = match.end()
    if not tokens:
        raise OptionError("expected a formula such as ~ party + bs(year), found none", "formula")
    return _Coder(text, tokens).coded()


class _Coder:
    """Walks the words of a formula."""

    def __init__(self, text: str, words: list[tuple[str, str]]) -> None:
        self.text, self.words = text, [*words, ("end", "")]
        self.fields: dict[tuple[str, bool | None], int] = {}
        self.calls: list[str] = []  # The function of each open bracket, empty for grouping

    def coded(self) -> CheckedFormula:
        parts: list[str] = []
        for place, (kind, word) in enumerate(self.words[:-1]):
            after, before = self._operator_at(place + 1), self._operator_at(place - 1)
            if kind == "quoted":
                parts.append(self._field(word))
            elif kind == "name" and after == "(":
                if word not in FUNCTIONS:
                    allowed = ", ".join(sorted(FUNCTIONS, key=str.lower))
                    raise self._error(
                        f"the function {word!r} is not allowed{near(word, FUNCTIONS)}; there are {allowed}"
                    )
                if "C" in (word, self._inside) and self._inside:
                    raise self._error("C takes the name of a field alone, such as C(year)")
            elif kind == "name":
                parts.append(self._keyword(word) if after == "=" else self._field(word))
            elif kind == "number":
                parts.append(self._number(word, before))
            else:
                parts.append(self._operator(word, place))
        if self.calls:
            raise self._error("a bracket is not closed")
        if sum(pair == ("operator", "*") for pair in self.words) > MAX_PRODUCTS:
            raise self._error(f"expected at most {MAX_PRODUCTS} operators `*`")
        return CheckedFormula(self.text.strip(), "".join(parts), tuple(self.fields))

    def _operator_at(self, place: int) -> str:
        kind, word = self.words[place] if place >= 0 else ("", "")
        return word if kind == "operator" else ""

    @property
    def _inside(self) -> str:
        """The innermost function, empty outside of all."""
        return next((call for call in reversed(self.calls) if call), "")

    def _error(self, message: str) -> OptionError:
        return OptionError(f"{self.text!r}: {message}", "formula")

    def _field(self, name: str) -> str:
        inside = self._inside
        if inside == "[":
            raise self._error("knots are numbers")
        number = None if not inside else inside != "C"
        return f"zz{self.fields.setdefault((name, number), len(self.fields))}zz"

    def _keyword(self, name: str) -> str:
        if self._inside not in BASES or name not in KEYWORDS:
            raise self._error(f"{name!r} is not allowed; {', '.join(BASES)} take {', '.join(KEYWORDS)}")
        return name

    def _number(self, word: str, before: str) -> str:
        value, inside = float(word), self._inside
        if before in ("^", "**"):
            if value not in range(1, MAX_POWER + 1):
                raise self._error(f"expected an exponent from 1 to {MAX_POWER}, found {word}")
        elif not inside and value not in (0, 1):
            raise self._error(f"the number {word} is not a term; 0, or - 1, leaves out the intercept")
        elif inside in BASES and value not in range(1, MAX_BASIS + 1):
            raise self._error(f"expected a whole number from 1 to {MAX_BASIS} in {inside}(), found {word}")
        return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)

    def _operator(self, word: str, place: int) -> str:
        after = self.words[place + 1]
        if word in ("(", "["):
            if word == "[" and self._inside not in BASES:
                raise self._error("'[' is allowed in knots=[...] alone")
            kind, name = self.words[place - 1] if place else ("", "")
            call = name if word == "(" and kind == "name" else ""
            self.calls.append(word if word == "[" else call)
            if call == "C":
                if after[0] not in ("name", "quoted") or self._operator_at(place + 2) != ")":
                    raise self._error("C takes the name of a field alone, such as C(year)")
                return "("
            return f"{call}(" if word == "(" else "["
        if word in (")", "]"):
            if not self.calls or (self.calls[-1] == "[") != (word == "]"):
                raise self._error(f"{word!r} closes nothing")
            call = self.calls.pop()
            return f"{_CENTRED})" if call in ("cr", "cs") else word
        if word in (",", "=", "[") and not self._inside:
            raise self._error(f"{word!r} is not allowed here")
        if word in ("^", "**"):
            if after[0] != "number":
                raise self._error("expected a number as exponent")
            return "**"
        return f" {word} " if word in "+-" else word


def require_formulaic() -> None:
    """Raise an error if formulaic is not installed."""
    try:
        import formulaic  # noqa: F401
        import pandas as pd  # noqa: F401
    except ImportError:
        raise MissingError("formulas need formulaic and pandas: pip install 'collapsium[covariates]'") from None


# ---- fields of documents


def fields_of(extras: Mapping[str, pa.Array], documents: int, names: Iterable[str], place: str) -> dict[str, Values]:
    """Return fields of a shard's documents: numbers, labels, and dates as years with fractions or as periods."""
    labels = labels_of(documents, {name: column for name, column in extras.items() if name != SEGMENTS})
    fields: dict[str, Values] = {}
    for name in names:
        base, _, period = name.partition(":")
        if name in labels.numbers:
            fields[name] = labels.numbers[name]
        elif base == DATE and DATE in extras and (not period or is_period(period)):
            fields[name] = date_values(extras[DATE].to_pylist(), period)
        elif any(field == name for field, _ in labels.names):
            chosen = np.array([field == name for field, _ in labels.names], dtype=bool)[labels.position]
            owner = np.repeat(np.arange(documents), np.diff(labels.offsets))[chosen]
            if np.unique(owner).size != owner.size:
                row = int(owner[1:][owner[1:] == owner[:-1]][0]) + 1
                raise InputError(place, f"several values of {name!r}; expected one per document", f"document {row}")
            values = np.full(documents, None, dtype=object)
            values[owner] = [labels.names[index][1] for index in labels.position[chosen].tolist()]
            fields[name] = values
    return fields


def names_in(extras: Mapping[str, pa.Array], documents: int) -> set[str]:
    """Return the names of a shard's fields."""
    labels = labels_of(documents, {name: column for name, column in extras.items() if name in (LABEL_COLUMN,)})
    numbers = {name for name, column in extras.items() if pa.types.is_float64(column.type)}
    return {field for field, _ in labels.names} | numbers | ({DATE} & set(extras))


def date_values(texts: Sequence[object], period: str = "") -> Values:
    """Return dates as years with fractions, or as names of periods; missing where a text is not a date."""
    read = {text: None if is_missing(text) else read_date(str(text)) for text in {*texts}}
    if not period:
        years = {text: math.nan if date is None else _year_of(date.hour) for text, date in read.items()}
        return np.array([years[text] for text in texts], dtype=np.float64)
    of_width = period_of(period)
    exact = {text: date for text, date in read.items() if date is not None and date.exact <= of_width.precision}
    hours = np.array([date.hour for date in exact.values()], dtype=np.int64)
    starts = of_width.starts(hours).tolist()
    by_text = {text: of_width.name(moment(start)) for text, start in zip(exact, starts, strict=True)}
    return np.array([by_text.get(text) for text in texts], dtype=object)


def _year_of(hour: int) -> float:
    """Return a moment, in hours since 1970, as a year with a fraction."""
    date = moment(hour)
    start, end = (hours_of(EPOCH.replace(year=year)) if year < 10_000 else hour for year in (date.year, date.year + 1))
    return date.year + (hour - start) / max(end - start, 1)


@dataclass(frozen=True)
class FieldCounts:
    """Values of a field with their numbers of documents; sums over shards."""

    values: Values  # Distinct values, ascending; float64 or strings
    counts: npt.NDArray[np.int64]  # Documents of each
    missing: int  # Documents without a value

    @property
    def is_number(self) -> bool:
        """True if the values are numbers."""
        return self.values.dtype == np.float64

    @property
    def mean(self) -> float:
        """Mean of a number."""
        values = self.values.astype(np.float64)
        return float((values * self.counts).sum() / max(int(self.counts.sum()), 1))

    @property
    def deviation(self) -> float:
        """Standard deviation of a number."""
        squares = (self.values.astype(np.float64) - self.mean) ** 2
        return math.sqrt(float((squares * self.counts).sum() / max(int(self.counts.sum()), 1)))

    def __add__(self, other: FieldCounts) -> FieldCounts:
        if not self.counts.size or not other.counts.size:
            some = self if self.counts.size else other
            return FieldCounts(some.values, some.counts, self.missing + other.missing)
        values = np.concatenate([self.values, other.values])
        return _counted(values, np.concatenate([self.counts, other.counts]), self.missing + other.missing)


def count_values(values: Values) -> FieldCounts:
    """Return the counts of a field's values."""
    if values.dtype == np.float64:
        known = values[~np.isnan(values.astype(np.float64))]
    else:
        known = values[[value is not None for value in values]]
    return _counted(known, np.ones(known.size, dtype=np.int64), values.size - known.size)


def _counted(
    values: Values, counts: npt.NDArray[np.int64], missing: int, max_values: int = MAX_DISTINCT
) -> FieldCounts:
    distinct, index = np.unique(values, return_inverse=True)
    if values.dtype == np.float64 and distinct.size > max_values:
        # The ends remain exact, because splines refuse values beyond them.
        low, high = distinct[0], distinct[-1]
        step = (high - low) / (max_values // 2)
        return _counted(np.minimum(low + np.rint((values - low) / step) * step, high), counts, missing, max_values)
    return FieldCounts(distinct, np.bincount(index, counts, distinct.size).astype(np.int64), missing)


# ---- designs


@dataclass(frozen=True)
class Design:
    """A formula fitted to the fields of a corpus, which gives each document a row of numbers."""

    formula: CheckedFormula
    spec: formulaic.ModelSpec
    columns: tuple[str, ...]  # Names of the columns, in the words of the formula
    terms: tuple[tuple[frozenset[str], slice], ...]  # Fields and columns of each term
    levels: Mapping[int, tuple[str, ...]]  # Levels of the labels, the most frequent first, by placeholder
    counts: Mapping[str, FieldCounts]  # Values of the fields
    indicators: tuple[str, ...]  # Numbers with missing values, each with a column of its own at the end
    # Whether numbers outside of functions are standardised, so that their products with others are, too
    standard: bool = False
    # Levels of fields with many, which have no columns; in a model, their effects are shrunken towards zero
    shrunken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def intercept(self) -> bool:
        """True if the first column is constant."""
        return bool(self.columns) and self.columns[0] == INTERCEPT

    def rows(self, fields: Mapping[str, Values]) -> Floats:
        """Return the rows of documents, shape (documents, columns)."""
        frame = _frame(self.formula, fields, self.levels, self.counts, standard=self.standard)
        parts = [_evaluated(self.spec, frame, self.counts)]
        parts += [np.isnan(_numbers(name, fields[name])).astype(np.float64)[:, None] for name in self.indicators]
        rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
        finite = np.isfinite(rows).all(axis=0)
        if not finite.all():
            raise OptionError(
                f"{self.columns[int((~finite).argmax())]}: not a finite number in some documents", "formula"
            )
        return rows

    def require(self, name: str) -> None:
        """Raise `OptionError` for a field that is not in the formula."""
        if name not in self.formula.names:
            raise OptionError(f"{name!r} is not a field of the formula{near(name, self.formula.names)}")

    def value(self, name: str, value: str) -> float | str:
        """Return the value of a field that a text stands for; `OptionError` for what no document has."""
        self.require(name)
        counts = self.counts[name]
        if value == MISSING and counts.missing and self.has_levels(name):
            return value
        if counts.is_number:
            try:
                number = float(value)
            except ValueError:
                number = float(date_values([value])[0]) if name == DATE else math.nan
            if not math.isfinite(number):
                raise OptionError(f"{name}: expected a {'date' if name == DATE else 'number'}, found {value!r}")
            if self.has_levels(name) and number not in counts.values:
                raise OptionError(f"{name}: no document has the value {value!r}")
            return number
        known = [str(level) for level in counts.values]
        if value not in known:
            raise OptionError(f"{name}: no document has the value {value!r}{near(value, known)}")
        return value

    def has_levels(self, name: str) -> bool:
        """Return True if a field is one of labels, or of numbers in ``C``."""
        return any(self.formula.fields[number][0] == name for number in self.levels)

    def levels_of(self, name: str) -> tuple[str, ...]:
        """Return the levels of a field of labels, the reference first."""
        numbers = [number for number, (field, _) in enumerate(self.formula.fields) if field == name]
        return next(self.levels[number] for number in numbers if number in self.levels)

    def term_columns(self, name: str) -> list[int]:
        """Return the columns of all terms with a field."""
        columns = [column for fields, span in self.terms if name in fields for column in range(span.start, span.stop)]
        return [*columns, *(place for place, column in enumerate(self.columns) if column == f"{name}[missing]")]


def fit_design(
    formula: CheckedFormula,
    counts: Mapping[str, FieldCounts],
    documents: int,
    known: set[str],
    *,
    standard: bool = False,
    shrinks: bool = False,
) -> Design:
    """Return the design of a formula: levels, scales and knots follow from the values of the fields.

    With `shrinks`, labels of more than `MAX_FIXED` levels have no columns.
    """
    require_formulaic()
    import formulaic

    for name in formula.names:
        if name not in known and not (name.startswith(f"{DATE}:") and DATE in known):
            names = ", ".join(sorted(known)[:20]) or "none"
            raise OptionError(f"no field {name!r}{near(name, known)}; the documents have: {names}", "formula")
        if not counts[name].counts.size:
            raise OptionError(f"{name!r}: no document has a {'readable date' if name == DATE else 'value'}", "formula")
    levels, shrunken = dict[int, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    for number, (name, is_number) in enumerate(formula.fields):
        if is_number and not counts[name].is_number:
            shown = str(counts[name].values[0])[:40]
            raise OptionError(f"{name!r}: expected numbers or dates, found {shown!r}", "formula")
        if shrinks and not counts[name].is_number and counts[name].values.size > MAX_FIXED:
            # Documents without a level have no effect of it.
            _require_shared(name, counts[name], documents)
            shrunken[name] = tuple(level_text(value) for value in counts[name].values.tolist())
            if (count := len(shrunken[name])) > MAX_LEVELS:
                raise OptionError(f"{name!r} has {count:,} levels; expected at most {MAX_LEVELS:,}", "formula")
        elif not counts[name].is_number or is_number is False:
            levels[number] = _levels(name, counts[name], documents)
    reference = _reference(formula, counts, documents)
    frame = _frame(formula, reference, levels, counts, standard=standard)
    try:
        parsed = _without(formulaic.Formula(formula.coded), shrunken, formula)
        if len(parsed) > MAX_COLUMNS:
            raise OptionError(f"expected at most {MAX_COLUMNS} terms, found {len(parsed):,}", "formula")
        with np.errstate(all="ignore"):
            spec = parsed.get_model_matrix(frame, context={"sqrt": np.sqrt}).model_spec
    except OptionError:
        raise
    except Exception as error:
        raise OptionError(f"{formula.text!r}: {_named(_first_line(error), formula)}", "formula") from None
    spec = spec.update(na_action="ignore")
    lacking = (
        name
        for number, (name, _) in enumerate(formula.fields)
        if number not in levels and counts[name].is_number and counts[name].missing
    )
    indicators = tuple(dict.fromkeys(lacking))
    columns = [*(_named(column, formula) for column in spec.column_names), *(f"{name}[missing]" for name in indicators)]
    if not columns:
        raise OptionError(f"{formula.text!r}: expected a term, found none", "formula")
    if len(columns) > MAX_COLUMNS:
        raise OptionError(f"expected at most {MAX_COLUMNS} columns, found {len(columns):,}", "formula")
    terms = tuple(
        (frozenset(formula.fields[int(number)][0] for number in _PLACEHOLDER.findall(str(term))), span)
        for term, span in spec.term_slices.items()
    )
    return Design(formula, spec, tuple(columns), terms, levels, dict(counts), indicators, standard, shrunken)


def _without(
    parsed: formulaic.SimpleFormula, shrunken: Mapping[str, tuple[str, ...]], formula: CheckedFormula
) -> formulaic.SimpleFormula:
    """Return a formula without the terms of fields of many levels, each of which is a field alone."""
    import formulaic

    terms = []
    for term in parsed:
        names = [formula.fields[int(number)][0] for number in _PLACEHOLDER.findall(str(term))]
        shrunken_names = [name for name in names if name in shrunken]
        if shrunken_names and len(names) > 1:
            raise OptionError(
                f"{shrunken_names[0]!r} has {len(shrunken[shrunken_names[0]]):,} levels; a field of more than "
                f"{MAX_FIXED} must be a separate term, as in + {shrunken_names[0]}",
                "formula",
            )
        terms += [] if shrunken_names else [term]
    return formulaic.Formula(terms) if shrunken else parsed


def _require_shared(name: str, counts: FieldCounts, documents: int) -> None:
    if counts.values.size > 1 and (counts.counts == 1).all() and counts.counts.sum() == documents:
        raise OptionError(
            f"{name!r} has another value in every document; expected levels that documents share", "formula"
        )


def _levels(name: str, counts: FieldCounts, documents: int) -> tuple[str, ...]:
    """Return the levels of a field, the most frequent first and the others in their order."""
    _require_shared(name, counts, documents)
    texts = [level_text(value) for value in counts.values.tolist()]
    if len(texts) > MAX_COLUMNS:
        raise OptionError(f"{name!r} has {len(texts):,} levels; expected at most {MAX_COLUMNS}", "formula")
    texts += [MISSING] * bool(counts.missing)
    numbers = [*counts.counts.tolist(), *([counts.missing] if counts.missing else [])]
    first = max(range(len(texts)), key=lambda place: (numbers[place], -place))
    if len(texts) == 1:
        raise OptionError(f"{name!r} is constant: all documents have {texts[0]!r}", "formula")
    return (texts[first], *(text for place, text in enumerate(texts) if place != first))


def level_text(value: object) -> str:
    """Return a value of a field as the name of a level."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def split_values(text: str, levels: Collection[str]) -> list[str]:
    """Return the values of a list with commas, which levels may contain too: the longest levels that can be read."""
    pieces, values, first = text.split(","), [], 0
    longest = 1 + max((level.count(",") for level in levels), default=0)
    while first < len(pieces):
        ends = range(min(first + longest, len(pieces)), first, -1)
        readings = [(end, ",".join(pieces[first:end])) for end in ends]
        # A level may begin or end with white space.
        matches = ((end, text) for end, read in readings for text in (read, read.strip()) if text in levels)
        last, value = next(matches, (first + 1, pieces[first].strip()))
        values.append(value)
        first = last
    return [value for value in values if value]


def _reference(formula: CheckedFormula, counts: Mapping[str, FieldCounts], documents: int) -> dict[str, Values]:
    """Return values of the fields from which knots and scales are computed, each field by itself."""
    size = max(min(documents, MAX_REFERENCE), 2)
    reference: dict[str, Values] = {}
    for name in formula.names:
        field = counts[name]
        ends = np.cumsum(field.counts)
        places = np.searchsorted(ends, (np.arange(size) + 0.5) / size * ends[-1], side="right")
        # The ends of the range are always among the values, because splines refuse values beyond them.
        places[0], places[-1] = 0, field.values.size - 1
        reference[name] = field.values[places]
    return reference


def _frame(
    formula: CheckedFormula,
    fields: Mapping[str, Values],
    levels: Mapping[int, tuple[str, ...]],
    counts: Mapping[str, FieldCounts],
    *,
    standard: bool,
) -> pd.DataFrame:
    """Return the fields under their placeholders, with missing numbers replaced by the mean."""
    import pandas as pd

    columns = {}
    for number, (name, inside) in enumerate(formula.fields):
        values = fields[name]
        if number not in levels and not counts[name].is_number:
            continue  # A field of many levels
        if number in levels:
            # Where no document lacked the field when the design was made, documents that lack it get the reference.
            place = {MISSING: 0} | {level: code for code, level in enumerate(levels[number])}
            missing = values.dtype == np.float64
            texts = [
                MISSING if value is None or (missing and value != value) else level_text(value)
                for value in values.tolist()
            ]
            codes = np.array([place.get(text, -1) for text in texts], dtype=np.int64)
            if (codes < 0).any():
                raise OptionError(f"{name}: no document has the value {texts[int((codes < 0).argmax())]!r}")
            columns[f"zz{number}zz"] = pd.Categorical.from_codes(codes, categories=list(levels[number]))
        else:
            numbers = _numbers(name, values)
            numbers = np.where(np.isnan(numbers), counts[name].mean, numbers)
            if standard and inside is None:
                with np.errstate(over="ignore", invalid="ignore"):
                    deviation = counts[name].deviation
                if not math.isfinite(deviation):
                    raise OptionError(f"{name!r} has numbers too large to square; rescale it", "formula")
                numbers = (numbers - counts[name].mean) / (deviation or 1.0)
            columns[f"zz{number}zz"] = numbers
    if not columns:
        columns["none"] = np.zeros(len(next(iter(fields.values()), np.zeros(1))))
    return pd.DataFrame(columns)


def _numbers(name: str, values: Values) -> Floats:
    """Return the values of a field of numbers, NaN where there is none; labels are refused."""
    labels = () if values.dtype == np.float64 else values.tolist()
    label = next((value for value in labels if isinstance(value, str)), None)
    if label is not None:
        raise OptionError(f"{name}: expected {'dates' if name == DATE else 'numbers or dates'}, found {label[:40]!r}")
    return values.astype(np.float64)


def _evaluated(spec: formulaic.ModelSpec, frame: pd.DataFrame, counts: Mapping[str, FieldCounts]) -> Floats:
    try:
        with np.errstate(all="ignore"):
            matrix = spec.get_model_matrix(frame, context={"sqrt": np.sqrt})
    except Exception as error:
        if "extend beyond" in str(error):
            numbers = [(name, field) for name, field in counts.items() if field.is_number and field.counts.size]
            spans = "; ".join(f"{name} from {field.values[0]:g} to {field.values[-1]:g}" for name, field in numbers)
            raise OptionError(f"a value lies beyond the knots of a spline; the documents have {spans}") from None
        raise OptionError(_first_line(error), "formula") from None
    return np.asarray(matrix, dtype=np.float64)


def _named(text: str, formula: CheckedFormula) -> str:
    """Return a text of formulaic with the names of the fields in place of placeholders."""
    text = text.replace(_CENTRED, "").replace(_CENTRED.replace("'", '"'), "")
    return _PLACEHOLDER.sub(lambda match: formula.fields[int(match[1])][0], text)


def _first_line(error: Exception) -> str:
    text = " ".join(_MARKS.sub("", str(error)).split())
    return unicodedata.normalize("NFC", text)[:300] or type(error).__name__


def _advice(column: str) -> str:
    """Return what to do about a curve of some documents alone; empty for other columns."""
    curve = _CURVE.search(column)
    further = "" if curve is None else (column[: curve.start()] + column[curve.end() :]).strip(":")
    if curve is None or not further:
        return ""
    group = re.sub(r"\[(?:T\.)?([^\]]*)\]", r"=\1", further)
    return (
        f"the documents with {group} are too few or too alike for a separate curve, {curve[1]}: lower its df, add "
        f"{further.partition('[')[0]} with + instead of *, or merge its rare levels"
    )


def basis(
    columns: Sequence[str], gram: Floats, documents: int, aliased: Sequence[int], numbers: Collection[str] = ()
) -> tuple[Floats, list[int]]:
    """Return a change of basis A in which the columns X A are far from collinear, and the columns that are used.

    `gram` is X'X. A constant column, or one that the columns before it determine, is an error that names it; columns
    in `aliased`, indicators of missing values, are left out instead, as fields are often missing together. Columns in
    `numbers` are known to vary, if only in digits that are lost in their squares.
    """
    count = len(columns)
    constant = columns[0] == INTERCEPT if count else False
    means = gram[0] / documents if constant else np.zeros(count)
    change = np.eye(count)
    for column in range(int(constant), count):
        if not math.isfinite(gram[column, column]):
            raise OptionError(f"the column {columns[column]!r} has numbers too large to square; rescale it", "formula")
        variance = gram[column, column] / documents - means[column] ** 2
        if variance <= CONSTANT * gram[column, column] / documents:
            if column in aliased:
                continue
            if columns[column] in numbers:
                raise OptionError(
                    f"the column {columns[column]!r} varies too little for its size; write center({columns[column]})",
                    "formula",
                )
            advice = _advice(columns[column]) or "leave it out"
            raise OptionError(f"the column {columns[column]!r} is constant; {advice}", "formula")
        change[column, column] = 1.0 / math.sqrt(variance)
        if constant:
            change[0, column] = -means[column] / math.sqrt(variance)
    scaled = change.T @ gram @ change / documents
    columns_used: list[int] = []
    vectors = np.zeros((count, count))  # Columns of A
    for column in range(count):
        vector = np.zeros(count)
        vector[column] = 1.0
        for index in columns_used * 2:
            vector -= vectors[:, index] * (vectors[:, index] @ scaled @ vector)
        left = float(vector @ scaled @ vector)
        if left <= COLLINEAR * max(scaled[column, column], 1e-300):
            if column in aliased:
                continue
            largest = [index for index in np.argsort(-np.abs(vector)).tolist() if index != column and vector[index]][:3]
            combined = ", ".join(repr(columns[index]) for index in largest)
            advice = _advice(columns[column]) or "leave one out"
            raise OptionError(f"the column {columns[column]!r} is a combination of {combined}; {advice}", "formula")
        vectors[:, column] = vector / math.sqrt(left)
        columns_used.append(column)
    scale = np.diag(1.0 / np.sqrt(np.maximum(np.diag(gram), 1e-300) / documents))[:, columns_used]
    roots = np.linalg.eigvalsh(scale.T @ gram @ scale)
    if roots[-1] < WELL_CONDITIONED * roots[0]:
        return scale, columns_used
    return change @ vectors[:, columns_used], columns_used


def taken_fields(fields: Mapping[str, Values], design: Design, occupied: npt.NDArray[np.bool_]) -> dict[str, Values]:
    """Return the fields of some documents; fields that no document of the part has are missing."""
    taken = {}
    for name in design.formula.names:
        if name in fields:
            taken[name] = fields[name][occupied]
            continue
        counts = design.counts[name]
        if counts.is_number and not design.has_levels(name):
            taken[name] = np.full(int(occupied.sum()), math.nan)
        else:
            taken[name] = np.full(int(occupied.sum()), None, dtype=object)
    return taken or {"": np.zeros(int(occupied.sum()))}


# ---- designs of models


MAX_FIXED = 50  # Levels of labels of a model's design that have a column each; the effects of more are shrunken
MAX_LEVELS = 20_000  # Levels of a field of a model's design, whose effects travel with the tasks of a fit
LARGEST_ENTRY = 1e30  # Largest absolute value of a row
MAX_STORED = 1000  # Distinct numbers of a field of a model's design; more are rounded, which moves knots a little


@dataclass(frozen=True)
class ModelDesign:
    """The design of a model: made from a formula and counts of fields, so that no code comes with a model."""

    design: Design
    used: tuple[int, ...]  # Columns that are used: all but indicators of values that are missing together
    # Numbers are centred and scaled; indicators and the intercept are not; float64 (columns used,)
    center: Floats
    scale: Floats
    documents: int
    known: tuple[str, ...]  # Names of the fields of the corpus

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [self.design.columns[column] for column in self.used]

    @property
    def terms(self) -> npt.NDArray[np.int64]:
        """Number of the term of each column; int64 (columns,)."""
        term = np.arange(len(self.design.columns)) + len(self.design.terms)
        for number, (_, span) in enumerate(self.design.terms):
            term[span] = number
        return np.unique(term[list(self.used)], return_inverse=True)[1].astype(np.int64)

    @property
    def levels(self) -> list[str]:
        """Names of the levels of all fields of many, one field after the other."""
        return [f"{name}[{level}]" for name, levels in self.design.shrunken.items() for level in levels]

    def places(self, fields: Mapping[str, Values], documents: int) -> npt.NDArray[np.int32]:
        """Return the places of documents' levels among all, shape (documents, fields of many); -1 for unseen ones."""
        columns, first = [], 0
        for name, levels in self.design.shrunken.items():
            place = {level: first + number for number, level in enumerate(levels)}
            values = fields[name].tolist() if name in fields else [None] * documents
            columns.append([-1 if value is None else place.get(level_text(value), -1) for value in values])
            first += len(levels)
        return np.array(columns, dtype=np.int32).reshape(len(columns), documents).T

    def rows(self, fields: Mapping[str, Values], documents: int) -> Floats:
        """Return the rows of documents, shape (documents, columns)."""
        taken = taken_fields(fields, self.design, np.ones(documents, dtype=np.bool_))
        rows = (self.design.rows(taken)[:, list(self.used)] - self.center) * self.scale
        # Numbers far from the data remain finite in single precision.
        return np.clip(rows, -LARGEST_ENTRY, LARGEST_ENTRY)

    def row_at(self, values: Mapping[str, str]) -> tuple[Floats, npt.NDArray[np.int32]]:
        """Return the row and the `places` of a document with some values; others are at the mean or the reference."""
        design, fields = self.design, dict[str, Values]()
        for name in values:
            design.require(name)
        for name in design.formula.names:
            counts = design.counts[name]
            value: float | str | None = None
            if name in values:
                value = design.value(name, values[name])
                value = math.nan if value == MISSING and counts.is_number else value
            elif name not in design.shrunken:
                value = design.levels_of(name)[0] if design.has_levels(name) else counts.mean
            numbers = counts.is_number and value is not None
            fields[name] = np.array([value], dtype=np.float64 if numbers else object)
        return self.rows(fields, 1)[0], self.places(fields, 1)[0]

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return the design as JSON in an array of bytes."""
        counts = {
            name: [field.values.tolist(), field.counts.tolist(), field.missing, field.is_number]
            for name, field in self.design.counts.items()
        }
        record = {
            "formula": self.design.formula.text,
            "columns": [*self.columns, *self.levels],
            "counts": counts,
            "used": self.used,
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "documents": self.documents,
            "known": self.known,
        }
        return np.frombuffer(json.dumps(record, separators=(",", ":")).encode(), dtype=np.uint8)


def unpacked_design(packed: npt.NDArray[np.uint8]) -> ModelDesign:
    """Return the design that `ModelDesign.packed` has packed, which may be untrusted."""
    return _unpacked(packed.tobytes())


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> ModelDesign:
    try:
        record = json.loads(packed)
        counts = {
            str(name): FieldCounts(
                np.array(values, dtype=np.float64 if number else np.str_), np.array(numbers, np.int64), int(missing)
            )
            for name, (values, numbers, missing, number) in record["counts"].items()
        }
        documents, known = int(record["documents"]), tuple(map(str, record["known"]))
        center, scale = (np.array(record[name], dtype=np.float64) for name in ("center", "scale"))
        used = tuple(map(int, record["used"]))
        formula = check_formula(record["formula"])
        if not set(formula.names) <= set(counts):
            raise ValueError("a field has no counts")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError("prevalence_design", f"not a design: {_first_line(error)}") from None
    design = fit_design(formula, counts, documents, set(known), standard=True, shrinks=True)
    if (
        center.shape != (len(used),)
        or scale.shape != center.shape
        or not all(0 <= n < len(design.columns) for n in used)
    ):
        raise DamagedError("prevalence_design", "expected as many columns as the formula has")
    return ModelDesign(design, used, center, scale, documents, known)


def count_fields(
    extras: Mapping[str, pa.Array], documents: int, names: Sequence[str], place: str
) -> tuple[dict[str, FieldCounts], set[str]]:
    """Return the counts of some fields of a shard's documents, and the names of all fields."""
    fields, counts = fields_of(extras, documents, names, place), {}
    for name in names:
        none = FieldCounts(np.zeros(0), np.zeros(0, dtype=np.int64), documents)
        counts[name] = count_values(fields[name]) if name in fields else none
    return counts, names_in(extras, documents)


def model_design(
    formula: CheckedFormula, counts: Mapping[str, FieldCounts], documents: int, known: set[str]
) -> ModelDesign:
    """Return the design of a formula before its columns are scaled."""
    stored = {}
    for name, known_values in counts.items():
        stored[name] = _counted(known_values.values, known_values.counts, known_values.missing, MAX_STORED)
    design = fit_design(formula, stored, documents, known, standard=True, shrinks=True)
    if not design.intercept:
        raise OptionError(f"{formula.text!r}: leaves out the intercept, which `prevalence` needs", "prevalence")
    columns = len(design.columns)
    return ModelDesign(
        design, tuple(range(columns)), np.zeros(columns), np.ones(columns), documents, tuple(sorted(known))
    )


def scaled_design(design: ModelDesign, gram: Floats) -> ModelDesign:
    """Return a design whose numbers have mean 0 and variance 1; `gram` is X'X over all documents.

    A constant or collinear column is an error that names it.
    """
    parts = design.design
    aliased = range(len(parts.columns) - len(parts.indicators), len(parts.columns))
    used = basis(parts.columns, gram, design.documents, aliased)[1]
    used = sorted({0, *used})
    center, scale = np.zeros(len(parts.columns)), np.ones(len(parts.columns))
    for (_, span), term in zip(parts.terms, parts.spec.term_slices, strict=True):
        if any(int(number) not in parts.levels for number in _PLACEHOLDER.findall(str(term))):
            columns = np.arange(span.start, span.stop)
            mean = gram[0, columns] / design.documents
            center[columns] = mean
            scale[columns] = 1.0 / np.sqrt(np.maximum(gram[columns, columns] / design.documents - mean**2, 1e-300))
    return replace(design, used=tuple(used), center=center[used], scale=scale[used])


def rows_of_documents(packed: npt.NDArray[np.uint8], extras: Mapping[str, pa.Array], documents: int) -> DocumentRows:
    """Return the rows of documents by a packed design; documents with equal fields share a row."""
    require_formulaic()
    design = unpacked_design(packed)
    fields = fields_of(extras, documents, design.design.formula.names, "documents")
    # Adding zero leaves no negative one. Places are exact in single precision.
    parts = design.rows(fields, documents) + 0.0, design.places(fields, documents)
    rows = np.concatenate(parts, axis=1).astype(np.float32)
    if not len(rows):
        return DocumentRows(rows, np.zeros(0, dtype=np.int32))
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    return DocumentRows(np.ascontiguousarray(distinct), place.reshape(-1).astype(np.int32))
