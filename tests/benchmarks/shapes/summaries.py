"""Medians of the records of the bench of shapes, by corpus, number of topics and contestant."""

import math
import statistics
from dataclasses import dataclass, field

SETTLED = 0.01
"""Nats by which the best of a grid may exceed the defaults."""


def median(values):
    """Return the median of the values that are not None, or None."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


@dataclass
class Summary:
    """The records of a contestant on a corpus.

    Attributes
    ----------
    corpus : str
        The corpus.
    topics : int
        Number of topics K.
    name : str
        The contestant.
    ours : bool
        True for a family of ours.
    runs : list of dict
        Its records without an error.
    error : str
        The error of the last record that has one.
    """

    corpus: str
    topics: int
    name: str
    ours: bool
    runs: list = field(default_factory=list)
    error: str = ""

    @property
    def group(self):
        """Return the corpus and the number of topics."""
        return self.corpus, self.topics

    @property
    def family(self):
        """Return the family, empty for a peer."""
        return self.runs[0]["family"] if self.runs else ""

    @property
    def is_default(self):
        """Return True for a family of ours at its defaults."""
        return self.ours and bool(self.runs) and not self.runs[0]["options"]

    @property
    def members(self):
        """Return the members of an ensemble, a median; None for a single fit."""
        return self.median("members")

    @property
    def iterations(self):
        """Return the iterations."""
        return max((run["iterations"] for run in self.runs), default=None)

    @property
    def iterations_text(self):
        """Return the iterations, with the members of an ensemble."""
        if self.members:
            return f"{self.members:g} x {self.iterations}"
        return "-" if self.iterations is None else str(self.iterations)

    def median(self, name):
        """Return the median of a number over the runs that have it, or None."""
        return median(run.get(name) for run in self.runs)

    def curve(self):
        """Return (seconds, score) by iteration, as medians over the rounds that have the iteration."""
        points = {}
        for run in self.runs:
            for point in run["points"]:
                points.setdefault(point["iteration"], []).append((point["seconds"], point["score"]))
        return [tuple(map(statistics.median, zip(*values, strict=True))) for _, values in sorted(points.items())]

    def seconds_to(self, score):
        """Return the median of the seconds until a score is exceeded; infinite if most rounds never do."""
        seconds = []
        for run in self.runs:
            passed = (point["seconds"] for point in run["points"] if point["score"] >= score)
            seconds.append(next(passed, math.inf))
        return statistics.median_high(seconds) if seconds else None

    def score_at(self, seconds):
        """Return the median score after some seconds: the last score if the fit had ended, None before the first."""
        scores = [[point["score"] for point in run["points"] if point["seconds"] <= seconds] for run in self.runs]
        return median(run_scores[-1] if run_scores else None for run_scores in scores)

    def score_after(self, iterations):
        """Return the median score after some iterations; None if the fit ended before."""
        scores = [[point["score"] for point in run["points"] if point["iteration"] == iterations] for run in self.runs]
        return median(run_scores[0] if run_scores else None for run_scores in scores)

    def varies(self, default):
        """Return whether this summary has the family of `default` with other options."""
        return self.group == default.group and self.family == default.family and bool(self.runs[0]["options"])

    def ensemble(self, found):
        """Return the summary of this contestant's ensemble, or None."""
        for summary in found:
            if summary.group == self.group and summary.members and summary.runs[0]["ensemble_of"] == self.name:
                return summary
        return None


def summaries(records):
    """Return a Summary of each contestant, by corpus and number of topics as they first occur."""
    order = {}
    for record in records:
        order.setdefault((record["corpus"], record["topics"]), {}).setdefault(record["contestant"], []).append(record)
    found = []
    for (corpus, topics), contestants in order.items():
        for name, cell_records in contestants.items():
            summary = Summary(corpus, topics, name, cell_records[0]["ours"])
            for record in cell_records:
                summary.error = record["error"]
                if not record["error"]:
                    summary.runs.append(record)
            found.append(summary)
    return found
