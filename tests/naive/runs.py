"""Cutting texts into runs of characters, one run at a time."""

import re


def number_runs(texts, inside):
    """Return the number of each run of each text, and the distinct runs in order of first occurrence."""
    pattern = re.compile(b"[" + b"".join(re.escape(bytes([byte])) for byte in range(256) if inside[byte]) + b"]+")
    numbers = {}
    numbers_by_text = [[numbers.setdefault(run, len(numbers)) for run in pattern.findall(text)] for text in texts]
    return numbers_by_text, list(numbers)


def expand_runs(numbers_by_text, words):
    """Return the words of each text, given the words of each distinct run."""
    return [[word for number in text for word in words[number]] for text in numbers_by_text]
