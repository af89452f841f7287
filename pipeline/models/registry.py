"""The families by name, and the checks of their options, schedules and corpora."""

from __future__ import annotations

import pkgutil
import reprlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pydantic

from collapsium.pipeline.options import option_error, python_value
from collapsium.storage.errors import OptionError, suggestion
from collapsium.workers.families.family import AnyFamily, FamilyOptions
from collapsium.workers.options import RECORDED, former_names, present_names, warn_renamed

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import Corpus

# Class of each family, imported when the family is first used: a command uses one of them
FAMILIES = {
    "author-topic": "collapsium.workers.families.gibbs.author_topic:AuthorTopic",
    "dirichlet-network": "collapsium.workers.families.networks.dirichlet_network:DirichletNetwork",
    "gibbs-hdp": "collapsium.workers.families.gibbs.gibbs_hdp:GibbsHdp",
    "gibbs-lda": "collapsium.workers.families.gibbs.gibbs_lda:GibbsLda",
    "gibbs-ncrp": "collapsium.workers.families.ncrp.gibbs_ncrp:GibbsNcrp",
    "hca": "collapsium.workers.families.hca.hca:Hca",
    "hdp": "collapsium.workers.families.cvb.hdp:Hdp",
    "hdsp": "collapsium.workers.families.vb.hdsp:Hdsp",
    "keyword-lda": "collapsium.workers.families.keywords.keyword_lda:KeywordLda",
    "labeled-lda": "collapsium.workers.families.gibbs.labeled_lda:LabeledLda",
    "lda": "collapsium.workers.families.cvb.lda:Lda",
    "ncrp": "collapsium.workers.families.ncrp.ncrp:Ncrp",
    "partially-labeled-lda": "collapsium.workers.families.gibbs.labeled_lda:PartiallyLabeledLda",
    "segmented-lda": "collapsium.workers.families.networks.dirichlet_network:SegmentedLda",
    "sequential-lda": "collapsium.workers.families.networks.dirichlet_network:SequentialLda",
    "vb-lda": "collapsium.workers.families.vb.vb_lda:VbLda",
}


def family_names() -> list[str]:
    """Return the names of all families."""
    return sorted(FAMILIES)


def load_family(name: str) -> type[AnyFamily]:
    """Return the class of a family."""
    if not isinstance(name, str):
        raise OptionError(f"expected the name of a family, found {reprlib.repr(name)}", "family")
    if name not in FAMILIES:
        raise OptionError(f"unknown family '{name}'{suggestion(name, family_names())}", "family")
    family: type[AnyFamily] = pkgutil.resolve_name(FAMILIES[name])
    return family


def make_family(name: str, options: FamilyOptions) -> AnyFamily:
    """Return a family with options."""
    return load_family(name).with_options(options)


def recorded_family(name: str, options: Mapping[str, object]) -> AnyFamily:
    """Return a family with options from a record."""
    return make_family(name, recorded_options(name, options))


def require_schedule(family: str, schedule: str) -> None:
    """Raise an error if a family cannot be fitted by a schedule."""
    able = load_family(family).schedules
    if schedule not in able:
        raise OptionError(f"expected {' or '.join(able)} with family '{family}', found {schedule!r}", "schedule")


def require_corpus(family: str, corpus: Corpus) -> None:
    """Raise an error if a corpus does not hold the documents or vectors that a family requires."""
    corpus.require(load_family(family).corpus_kind, f"family '{family}'")


def recorded_options(family: str, options: Mapping[str, object]) -> FamilyOptions:
    """Check a family's options from a record, which may name no file; see `make_options`."""
    return _checked(family, options, (), RECORDED)


def make_options(
    family: str, options: Mapping[str, object], further_options: Iterable[str] = (), *, drawing: bool = False
) -> FamilyOptions:
    """Check a family's options, as a user gives them, for fits or for `drawing` a corpus."""
    checked = _checked(family, options, further_options, None)
    drawn = {} if drawing else dict.fromkeys(checked.drawn, "`simulate`")
    for name, applies in {**checked.unused, **drawn}.items():
        if getattr(checked, name) != type(checked).model_fields[name].default:
            raise OptionError(f"applies only to {applies}", name)
    return checked


def changed_options(
    family: str, before: FamilyOptions, changes: Mapping[str, object], further_options: Iterable[str]
) -> FamilyOptions:
    """Check the options of an earlier fit, some of which a user gives anew; see `make_options`."""
    changes = present_names(changes, former_names(type(before)), warn_renamed)
    return _checked(family, {**before.model_dump(), **changes}, further_options, None)


def _checked(
    family: str, options: Mapping[str, object], further_options: Iterable[str], context: str | None
) -> FamilyOptions:
    declared = load_family(family).Options
    notice = None if context == RECORDED else warn_renamed
    options = present_names(options, former_names(declared), notice)
    options = {name: python_value(value) for name, value in options.items()}
    for name in options:
        if name not in declared.model_fields:
            near = elsewhere(name) or suggestion(name, (*declared.model_fields, *further_options))
            raise OptionError(f"unknown option '{name}' of family '{family}'{near}")
    try:
        return declared.model_validate(dict(options), context=context)
    except pydantic.ValidationError as error:
        raise option_error(error, declared) from None


def elsewhere(option: str) -> str:
    """Return the families that have an option, as the end of an error; empty if none has."""
    names = [name for name in family_names() if option in load_family(name).Options.model_fields]
    return f"; families with it: {', '.join(names)}" if names else ""
