"""Counts of words and pairs in sliding windows, one window at a time."""


def count(texts, pairs, size, exact):
    """Return the number of windows, and the numbers with each word and with both words of each pair.

    Texts are lists of word numbers, or -1 for words without a number.
    """
    words, both, windows = {}, dict.fromkeys(pairs, 0), 0
    for text in texts:
        width = len(text) if size is None else size
        inside, before = set(), None
        for start in range(max(len(text) - width + 1, 1)):
            window = text[start : start + width]
            windows += 1
            inside = set(window) if exact or before is None else (inside - {before}) | {window[-1]}
            before = window[0] if window else None
            inside -= {-1}
            for word in inside:
                words[word] = words.get(word, 0) + 1
            for first, second in pairs:
                both[first, second] += first in inside and second in inside
    return windows, words, both
