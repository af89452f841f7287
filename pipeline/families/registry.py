"""The families by name, and the checks of what they are asked for."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import pydantic

from collapsium.pipeline.families.base import AnyFamily, FamilyOptions
from collapsium.storage.errors import OptionError, suggestion

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import Corpus
    from collapsium.workers.families.base import AnyShardModel

FAMILIES = {
    "author-topic": "collapsium.pipeline.families.gibbs.author_topic:AuthorTopic",
    "dirichlet-network": "collapsium.pipeline.families.networks.dirichlet_network:DirichletNetwork",
    "gibbs-hdp": "collapsium.pipeline.families.gibbs.gibbs_hdp:GibbsHdp",
    "gibbs-lda": "collapsium.pipeline.families.gibbs.gibbs_lda:GibbsLda",
    "gibbs-ncrp": "collapsium.pipeline.families.ncrp.gibbs_ncrp:GibbsNcrp",
    "hca": "collapsium.pipeline.families.hca.hca:Hca",
    "hdp": "collapsium.pipeline.families.cvb.hdp:Hdp",
    "hdsp": "collapsium.pipeline.families.vb.hdsp:Hdsp",
    "labeled-lda": "collapsium.pipeline.families.gibbs.labeled_lda:LabeledLda",
    "lda": "collapsium.pipeline.families.cvb.lda:Lda",
    "ncrp": "collapsium.pipeline.families.ncrp.ncrp:Ncrp",
    "partially-labeled-lda": "collapsium.pipeline.families.gibbs.partially_labeled_lda:PartiallyLabeledLda",
    "segmented-lda": "collapsium.pipeline.families.networks.segmented_lda:SegmentedLda",
    "sequential-lda": "collapsium.pipeline.families.networks.sequential_lda:SequentialLda",
    "vb-lda": "collapsium.pipeline.families.vb.vb_lda:VbLda",
}
"""Class of each family, imported when the family is first used: a command uses one of them."""


def family_names() -> list[str]:
    """Return the names of all families."""
    return sorted(FAMILIES)


def load_family(name: str) -> AnyFamily:
    """Return a family.

    Parameters
    ----------
    name : str
        The family's name.

    Returns
    -------
    Family
        Its half on the driver.

    Raises
    ------
    OptionError
        There is no such family.
    """
    if name not in FAMILIES:
        raise OptionError(f"unknown family '{name}'{suggestion(name, family_names())}", "family")
    return _family(FAMILIES[name])


@cache
def _family(address: str) -> AnyFamily:
    """Return the family of a class, given as ``module:Class``."""
    family: AnyFamily = pkgutil.resolve_name(address)()
    return family


def shard_model(family: str, options: Mapping[str, Any]) -> AnyShardModel:
    """Return the half of a family beside the shards, with its options.

    Parameters
    ----------
    family : str
        The family's name.
    options : mapping
        Its options, as a model records them.

    Returns
    -------
    ShardModel
        What tasks are sent.
    """
    return load_family(family).make_shard_model(make_options(family, options))


def require_schedule(family: str, schedule: str) -> None:
    """Refuse a schedule that a family cannot be fitted by.

    Parameters
    ----------
    family : str
        The family's name.
    schedule : str
        The schedule's.

    Raises
    ------
    OptionError
        The family does not name it.
    """
    able = load_family(family).schedules
    if schedule not in able:
        raise OptionError(f"--schedule {schedule}: family '{family}' can be fitted by {', '.join(able)} alone")


def require_corpus(family: str, corpus: Corpus) -> None:
    """Refuse a corpus that holds something else than a family takes.

    Parameters
    ----------
    family : str
        The family's name.
    corpus : Corpus
        The corpus.

    Raises
    ------
    MismatchError
        It holds vectors and the family takes documents, or the other way round.
    """
    corpus.require(load_family(family).corpus_kind, f"family '{family}'")


def make_options(family: str, options: Mapping[str, Any], others: Iterable[str] = ()) -> FamilyOptions:
    """Check a family's options.

    Parameters
    ----------
    family : str
        The family's name.
    options : mapping
        Options by name; what is left out has its default.
    others : iterable of str, optional
        Names that the caller takes besides, one of which may have been meant by an unknown name.

    Returns
    -------
    FamilyOptions
        All options.

    Raises
    ------
    OptionError
        An option is unknown, missing or out of range.
    """
    declared = load_family(family).Options
    for name in options:
        if name not in declared.model_fields:
            near = suggestion(name, (*declared.model_fields, *others))
            raise OptionError(f"unknown option '{name}' of family '{family}'{near}")
    try:
        return declared.model_validate(dict(options))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "options"
        if first["type"] == "missing":
            raise OptionError(f"`{name}` is required: {declared.model_fields[name].description}") from None
        raise OptionError(f"{_expected(first)}, found {first['input']!r}", name) from None


def _expected(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    return message.replace("expected greater", "expected a value greater").replace(
        "expected less", "expected a value less"
    )
