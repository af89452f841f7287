"""A batch job that several test modules use."""

import json

import numpy as np
import pytest

WORDS = [
    f"{first}{second}" for first in ("sail", "bread", "tax") for second in ("or", "er", "ing", "ed", "less", "ful")
]


JOB = """[batch]
folder = "job"
[ingest]
sources = ["day-*.jsonl"]
shard_tokens = 600
[fit]
family = "lda"
topics = 3
beta = 3.0
iterations = 30
[cluster]
scheduler = "serial"
"""


def write_day(folder, day, documents=40, words=None, noise=0.05):
    """Write a day's documents, each of which is mostly about one of three themes."""
    generator = np.random.default_rng(day)
    words = words or WORDS
    lines = []
    for number in range(documents):
        theme = number % 3
        weight = np.full(len(words), noise)
        weight[theme * 6 : theme * 6 + 6] = 1.0
        text = " ".join(generator.choice(words, 30, p=weight / weight.sum()))
        lines.append(json.dumps({"id": f"{day}-{number}", "text": text}) + "\n")
    (folder / f"day-{day}.jsonl").write_text("".join(lines))


@pytest.fixture
def job(tmp_path):
    """A job with its first day's documents."""
    write_day(tmp_path, 1)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path
