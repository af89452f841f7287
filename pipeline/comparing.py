"""Comparing families on one corpus: a grid of families and numbers of topics, with one definition of the score."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collapsar.pipeline.alignment import require_tokens
from collapsar.pipeline.compared import (
    CELL_KIND,
    CELLS,
    KIND,
    PARTS,
    PEERS_TEXT,
    RECORD,
    RUNS,
    SERIES_FILE,
    SUFFIX,
    TABLE,
    TEXT,
    VERSION,
    cells_done,
    record_of,
    row_of,
    runs_there,
)
from collapsar.pipeline.config import ITERATIONS
from collapsar.pipeline.events import Sink, tell
from collapsar.pipeline.executor import TLS, check_scheduler
from collapsar.pipeline.fitting import fit, resume
from collapsar.pipeline.grid import (
    RESTARTS,
    STARTS,
    TOPICS,
    Asked,
    Cell,
    PeerCell,
    all_families,
    cells_of,
    peer_cells,
    require_comparable,
    shown,
)
from collapsar.pipeline.intake import split
from collapsar.pipeline.measuring import (
    ROW,
    SERIES,
    Reading,
    about,
    measure,
    runs_of,
    series_of,
    table_text,
    write_rows,
)
from collapsar.pipeline.members import member_seed
from collapsar.pipeline.peering import fit_peer, peers_text
from collapsar.pipeline.peers import installed
from collapsar.pipeline.plotting import draw
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import CollapsarError, InputError, MismatchError, OccupiedError, OptionError
from collapsar.storage.folder import Folder
from collapsar.storage.lock import RunLock
from collapsar.storage.records import dump
from collapsar.storage.run import Run
from collapsar.storage.sizes import parse_size


@dataclass(frozen=True)
class Comparison:
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
    CollapsarError
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
    )
    where = {"scheduler": scheduler, "workers": workers, "memory": memory, "scratch": scratch, "tls": tls}
    return _Comparing(Corpus(corpus), heldout, Folder(out), asked, where, sinks).run()


class _Comparing:
    """A comparison on its way."""

    def __init__(
        self,
        corpus: Corpus,
        heldout: str | os.PathLike[str] | None,
        folder: Folder,
        asked: Asked,
        where: dict[str, Any],
        sinks: Sequence[Sink],
    ) -> None:
        self._corpus, self._given, self._folder, self._asked = corpus, heldout, folder, asked
        self._where, self._sinks = where, sinks
        # A cluster of our own is not started again for each score.
        near = "threads" if where["scheduler"] == "local" else where["scheduler"]
        self._reading = Reading(near, where["workers"], where["tls"] if near == where["scheduler"] else None)
        self._owned: Callable[[], None] = lambda: None
        self._left_out: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._peers: list[dict[str, Any]] = []

    def run(self) -> Comparison:
        """Fit what is not fitted yet, and write tables and plots."""
        require_comparable(self._corpus, self._asked)
        shards = len(self._corpus.manifest.shards)
        cells, peers = cells_of(self._asked, shards), peer_cells(self._asked)  # options are checked before all else
        self._require_heldout()
        check_scheduler(self._where["scheduler"], self._where["workers"])
        if self._where["memory"] is not None:
            parse_size(self._where["memory"])
        new = self._begin()
        with RunLock(self._folder / "lock") as lock:
            self._owned = lock.require
            try:
                self._train, self._heldout = self._parts()
                self._about = about(self._corpus, self._train, self._heldout, self._asked)
                return self._work(cells, peers)
            except CollapsarError:
                if new and not self._kept():
                    self._folder.remove()
                raise

    def _kept(self) -> bool:
        """Say whether there is a fit, or what one came to."""
        return bool(cells_done(self._folder)) or any(True for _ in runs_there(self._folder))

    def _work(self, cells: Sequence[Cell], peers: Sequence[PeerCell]) -> Comparison:
        """Make all cells, and tell what they came to."""
        done = [cell for cell in cells if self._row(cell.name) is not None]
        self._tell(
            "grid",
            cells=len(cells) + len(peers),
            done=len(done) + sum(self._row(one.name) is not None for one in peers),
            work=sum(cell.work for cell in cells),
            work_done=sum(cell.work for cell in done),
            peers=len(peers),
        )
        for cell in cells:
            self._do(cell, cells[0])
        if peers:
            self._fit_peers(peers)
        return self._finish(cells)

    def _require_heldout(self) -> None:
        """Refuse, before anything is made, a held-out corpus that is not one."""
        if self._given is not None:
            held = Corpus(self._given)
            require_tokens(held)
            held.require_vocabulary_of(self._corpus.manifest.vocabulary.words_sha256, self._corpus.url)
            if held.manifest.digest == self._corpus.manifest.digest:
                raise MismatchError(
                    f"{held.url}: is the corpus itself, whose tokens are fitted to; see `collapsar split`"
                )
            if held.manifest.documents != self._corpus.manifest.documents:
                raise MismatchError(
                    f"{held.url}: expected the {self._corpus.manifest.documents} documents of {self._corpus.url}, "
                    f"found {held.manifest.documents}"
                )
        elif not 0 < (self._asked.fraction or 0) < 1:
            raise OptionError(f"--fraction: expected a number between 0 and 1, found {self._asked.fraction!r}")

    def _begin(self) -> bool:
        """Write what is asked for, or find that it is what was asked for before; say whether it is new."""
        held = None if self._given is None else Corpus(self._given).manifest.digest
        record = {**self._asked.record(), "corpus": self._corpus.manifest.digest, "heldout": held}
        new = not self._folder.exists(RECORD)
        if new:
            if self._folder.exists() and self._folder.names():
                raise OccupiedError(f"{self._folder.url}: exists, and is no comparison; name a new folder")
            self._folder.make()
            self._folder.create(RECORD, dump({"format": KIND, "version": VERSION, **record}))
        before = record_of(self._folder)
        for name, value in record.items():
            if before.get(name) != value:
                flag = {"corpus": "CORPUS", "settings": "--set"}.get(name, f"--{name.replace('_', '-')}")
                raise OptionError(
                    f"{flag}: the comparison in {self._folder.url} was begun with {shown(before.get(name))}, found "
                    f"{shown(value)}; name a new folder, or say what was said before"
                )
        return new

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

    def _row(self, name: str) -> dict[str, Any] | None:
        """Return what was recorded of a cell; None where it is not done."""
        return row_of(self._folder, name) if (self._folder / CELLS).exists(name + SUFFIX) else None

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        self._owned()
        record = {"format": CELL_KIND, "version": VERSION, "row": row}
        (self._folder / CELLS).write(name + SUFFIX, dump(record))

    def _do(self, cell: Cell, first: Cell) -> None:
        """Fit and measure a cell, if that is not done."""
        place, row = self._place(cell), self._row(cell.name)
        if row is None:
            self._tell("cell_begins", cell=cell.name, fits=cell.restarts, iterations=cell.iterations, work=cell.work)
            began = time.perf_counter()
            sources = [run.folder.url for run in runs_of(first, self._place(first))] if cell.warm else []
            self._fit(cell, place, sources)
            row = measure(cell, place, self._train, self._heldout, self._reading)
            self._keep(cell.name, row)
            took = time.perf_counter() - began
            score = {"score": row["score"], "score_error": row["score_error"]}
            self._tell("cell_done", cell=cell.name, work=cell.work, elapsed=took, **score)
        self._rows.append(row)
        self._write_table()

    def _place(self, cell: Cell) -> Folder:
        return self._folder / RUNS / cell.name

    def _leave_out(self, text: str) -> None:
        self._left_out.append(text)
        self._tell("notice", text=f"left out: {text}")

    def _fit(self, cell: Cell, place: Folder, sources: Sequence[str]) -> None:
        """Make a cell's fits, or go on with them: restarts side by side or, where each has its own source, in turn."""
        options = {"family": cell.family, "heldout": self._heldout.url, **cell.options, **cell.limits}
        if not sources:
            self._fit_one(place, self._sink_of(cell), {**options, "seed": self._asked.seed, "restarts": cell.restarts})
            return
        for number, source in enumerate(sources):
            given = {**options, "seed": member_seed(self._asked.seed, number), "warm": source}
            self._fit_one(place / f"{number:03d}", self._sink_of(cell, member=number), given)

    def _fit_one(self, place: Folder, sink: Callable[[dict[str, Any]], None], options: dict[str, Any]) -> None:
        self._owned()
        if Run(place.url).exists():
            lying: dict[str, Any] = {
                "corpus": self._train.url,
                "heldout": self._heldout.url,
                "warm": options.get("warm"),
            }
            resume(place.url, sinks=[sink], **lying, **self._where)
            return
        if place.exists():
            place.remove()  # its record was not written yet
        fit(self._train.url, place.url, sinks=[sink], **options, **self._where)

    def _sink_of(self, cell: Cell, **more: Any) -> Sink:
        def sink(event: dict[str, Any]) -> None:
            tell(self._sinks, {**event, "cell": cell.name, **more})

        return sink

    def _fit_peers(self, cells: Sequence[PeerCell]) -> None:
        """Fit other libraries, one after another, each in a process of its own."""
        for peer in self._asked.peers:
            if not installed(peer):
                self._leave_out(f"{peer}: it is not installed")
        for cell in cells:
            if not installed(cell.peer):
                continue
            row = self._row(cell.name)
            if row is None:
                self._tell("cell_begins", cell=cell.name, fits=1, iterations=cell.options["iterations"], work=0.0)
                began = time.perf_counter()
                row = fit_peer(cell, self._train, self._heldout, self._asked.seed, self._where["workers"])
                took = time.perf_counter() - began
                if "error" in row:
                    self._leave_out(f"{cell.name}: {row['error']}")
                    continue
                self._keep(cell.name, row)
                self._tell("cell_done", cell=cell.name, work=0.0, elapsed=took, score=row["score"])
            self._peers.append(row)

    def _write_table(self) -> None:
        write_rows(self._folder, TABLE, self._rows, ROW)
        self._folder.write(TEXT, table_text(self._rows, self._left_out, self._about).encode())

    def _finish(self, cells: Sequence[Cell]) -> Comparison:
        """Write all that is told of the whole grid."""
        series = [row for cell in cells for row in series_of(cell, self._place(cell))]
        write_rows(self._folder, SERIES_FILE, series, SERIES)
        self._write_table()
        if self._asked.peers:
            runs = {cell.name: runs_of(cell, self._place(cell))[0] for cell in cells}
            text = peers_text(
                self._rows, self._peers, runs, [*self._about, *(f"Left out: {one}" for one in self._left_out)]
            )
            self._folder.write(PEERS_TEXT, text.encode())
        plots = draw(self._rows, series, self._folder / "plots")
        if plots is None:
            self._tell("notice", text="no plots: matplotlib is not installed (pip install 'collapsar[plots]')")
        self._tell("compared", rows=len(self._rows), plots=len(plots or []))
        return Comparison(
            self._folder.url, tuple(self._rows), tuple(self._peers), tuple(self._left_out), tuple(plots or [])
        )

    def _tell(self, name: str, **fields: Any) -> None:
        tell(self._sinks, {"event": name, **fields})
