"""Comparing families on one corpus: a grid of families and numbers of topics, with one definition of the score."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from collapsium.pipeline.corpora.ingest import split
from collapsium.pipeline.engine.leakage.lineage import require_held_out
from collapsium.pipeline.engine.setup.heldout import require_tokens
from collapsium.pipeline.engine.setup.limits import ITERATIONS
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.keywords import checked_keywords
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.workflows.compare.baselines.libraries import installed
from collapsium.pipeline.workflows.compare.baselines.subprocesses import fit_peer, peers_text
from collapsium.pipeline.workflows.compare.cells import PeerCell
from collapsium.pipeline.workflows.compare.grid import (
    Asked,
    Cell,
    all_families,
    cells_of,
    peer_cells,
    require_comparable,
)
from collapsium.pipeline.workflows.compare.metrics import ROW, about, measure, runs_of, table_text
from collapsium.pipeline.workflows.compare.options import RESTARTS, STARTS, TOPICS
from collapsium.pipeline.workflows.compare.plots import draw
from collapsium.pipeline.workflows.compare.runner import CellWork
from collapsium.pipeline.workflows.compare.tables import write_rows
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.errors import InputError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import PARTS, PEERS_TEXT, TABLE, TEXT
from collapsium.storage.short_repr import ShortRepr


@dataclass(frozen=True, repr=False)
class Comparison(ShortRepr):
    """What a comparison came to.

    Attributes
    ----------
    folder : str
        Where it lies.
    rows : tuple of dict
        A row a cell, as in ``table.parquet``.
    peers : tuple of dict
        A row a fit of another library.
    left_out : tuple of str
        What could not be fitted, and why.
    plots : tuple of str
        Names of the pictures in ``plots``, without their endings.
    """

    folder: str
    rows: tuple[dict[str, Any], ...]
    peers: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...]
    plots: tuple[str, ...]


@checked_keywords()
def compare(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    families: Sequence[str] | None = None,
    topics: Sequence[int] = TOPICS,
    restarts: int = RESTARTS,
    iterations: int = ITERATIONS,
    start_topics: Sequence[int] = STARTS,
    heldout: str | os.PathLike[str] | None = None,
    fraction: float = 0.1,
    seed: int = 0,
    samples: int = 0,
    sample_every: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    start_from: str | None = None,
    peers: Sequence[str] = (),
    vary: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
    scheduler: str = "threads",
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    tls: TLS | None = None,
    sinks: Sequence[Sink] = (),
) -> Comparison:
    """Compare families by held-out score over numbers of topics, with restarts.

    What it shows are Figures 2 and 3 of Teh, Kurihara and Welling (2007). Called again with the same options, it goes
    on where it was stopped.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    out : str or path-like
        Folder to make, or that of the same comparison begun before.
    families : sequence of str, optional
        By default all.
    topics : sequence of int, optional
        Numbers of topics K.
    restarts : int, optional
        Fits of each cell.
    iterations : int, optional
        Of each fit.
    start_topics : sequence of int, optional
        What families that find their number of topics start from.
    heldout : str or path-like, optional
        Held-out tokens of the corpus's documents; by default they are split off the corpus.
    fraction : float, optional
        Share of the tokens that is split off.
    seed : int, optional
        Of the split and the fits.
    samples, sample_every : int, optional
        Of samplers: states whose predictions are averaged, and the iterations between two.
    settings : mapping, optional
        Options by family (or peer) and name, such as ``{"lda": {"alpha": "0.1/K", "iterations": 100}}``.
    start_from : str, optional
        A family that is fitted first; the others are fitted from random starts and from its fits.
    peers : sequence of str, optional
        Other libraries to fit beside: ``scikit-learn``, ``gensim``, ``tomotopy``, ``topica``, and ``gensim-hdp``,
        ``tomotopy-hdp``, ``topica-hdp``, which find the number of topics.
    vary : mapping, optional
        Several values of options, by family, or ``*`` for all that have the option, and name: a cell for each, such as
        ``{"*": {"alpha": [0.1, 0.5]}}``.
    scheduler, workers, memory, scratch, tls, sinks
        As for `fit`.

    Returns
    -------
    Comparison
        The table; the folder has it too, with series and plots.

    Raises
    ------
    OptionError
        An option is wrong, or another than the comparison was begun with.
    LockedError
        Another process works on it.
    CollapsiumError
        As for `fit`.
    """
    asked = Asked(
        tuple(all_families() if families is None else families),
        tuple(topics),
        tuple(start_topics),
        restarts,
        iterations,
        samples,
        sample_every,
        dict(settings or {}),
        start_from,
        tuple(peers),
        None if heldout is not None else float(fraction),
        seed,
        vary or None,
    )
    where = {"scheduler": scheduler, "workers": workers, "memory": memory, "scratch": scratch, "tls": tls}
    return _Comparing(Corpus(corpus), heldout, Folder(out), asked, where, sinks).run()


class _Comparing(CellWork):
    """A comparison by held-out tokens."""

    def __init__(
        self,
        corpus: Corpus,
        heldout: str | os.PathLike[str] | None,
        folder: Folder,
        asked: Asked,
        where: dict[str, Any],
        sinks: Sequence[Sink],
    ) -> None:
        super().__init__(corpus, folder, asked, where, sinks)
        self._given = heldout
        self._peers: list[dict[str, Any]] = []

    def run(self) -> Comparison:
        """Fit what is not fitted yet, and write tables and plots."""
        require_comparable(self._corpus, self._asked)
        shards = len(self._corpus.manifest.shards)
        cells, peers = cells_of(self._asked, shards), peer_cells(self._asked)  # options are checked before all else
        self._require_heldout()
        self._check_where()
        held = None if self._given is None else Corpus(self._given).manifest.digest
        record = {**self._asked.record(), "corpus": self._corpus.manifest.digest, "heldout": held, "unseen": None}
        return self._within(record, lambda: self._work(cells, peers))

    def _work(self, cells: Sequence[Cell], peers: Sequence[PeerCell]) -> Comparison:
        """Make all cells, and tell what they came to."""
        self._train, self._held = self._parts()
        self._heldout = self._held
        self._about = about(self._corpus, self._train, self._held, self._asked)
        self._foretell(cells, [one.name for one in peers])
        for cell in cells:
            self._do(cell, cells[0])
        if self._asked.peers:
            self._fit_peers(peers)
            self._write_peers(cells)
        plots = self._finish(cells, lambda series: draw(self._rows, series, self._folder / "plots"))
        return Comparison(self._folder.url, tuple(self._rows), tuple(self._peers), tuple(self._left_out), plots)

    def _measure(self, cell: Cell) -> dict[str, Any]:
        return measure(cell, self._place(cell), self._train, self._held, self._reading)

    def _require_heldout(self) -> None:
        """Refuse, before anything is made, a held-out corpus that is not one."""
        if self._given is not None:
            held = Corpus(self._given)
            require_tokens(held)
            held.require_vocabulary_of(self._corpus.manifest.vocabulary.words_sha256, self._corpus.url)
            require_held_out(lineage_of(self._corpus), held, f"the training corpus {self._corpus.url}")
            if held.manifest.documents != self._corpus.manifest.documents:
                raise MismatchError(
                    f"{held.url}: expected the {self._corpus.manifest.documents} documents of {self._corpus.url}, "
                    f"found {held.manifest.documents}"
                )
        elif not 0 < (self._asked.fraction or 0) < 1:
            raise OptionError(f"--fraction: expected a number between 0 and 1, found {self._asked.fraction!r}")

    def _parts(self) -> tuple[Corpus, Corpus]:
        """Return the training and the held-out corpus; split them off, if that is not done yet."""
        if self._given is not None:
            train, heldout = self._corpus, Corpus(self._given)
        else:
            places = [self._folder / part for part in PARTS]
            if not all(place.exists() for place in places):
                for place in places:  # one alone is what a process that died has left
                    place.remove()
                fraction = self._asked.fraction or 0.0
                split(self._corpus.url, *(place.url for place in places), fraction=fraction, seed=self._asked.seed)
            train, heldout = Corpus(places[0].url), Corpus(places[1].url)
        for one in (train, heldout):
            if not one.manifest.tokens:
                raise InputError(one.url, "has no tokens, so that nothing can be scored; hold out another --fraction")
        return train, heldout

    def _fit_peers(self, cells: Sequence[PeerCell]) -> None:
        """Fit other libraries, one after another, each in a process of its own."""
        for peer in self._asked.peers:
            if not installed(peer):
                self._leave_out(f"{peer}: it is not installed")
        for cell in cells:
            if not installed(cell.peer):
                continue
            fitted = partial(fit_peer, cell, self._train, self._held, self._asked.seed, self._where["workers"])
            row = self._do_other(cell.name, cell.options["iterations"], fitted)
            if row is not None:
                self._peers.append(row)

    def _write_table(self) -> None:
        write_rows(self._folder, TABLE, self._rows, ROW)
        self._folder.write(TEXT, table_text(self._rows, self._left_out, self._about).encode())

    def _write_peers(self, cells: Sequence[Cell]) -> None:
        """Write the peers' scores and topics beside those of the families."""
        runs = {cell.name: runs_of(cell, self._place(cell))[0] for cell in cells}
        about = [*self._about, *(f"Left out: {one}" for one in self._left_out)]
        self._folder.write(PEERS_TEXT, peers_text(self._rows, self._peers, runs, about).encode())
