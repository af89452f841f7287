"""Topics with keywords, one word of one topic at a time (the Gibbs sampler of the base model in Eshima, Imai and
Sasaki 2024)."""

import numpy as np


def conditional(counts, keyword_counts, keywords, priors):
    """Return p(w, s | z = k) for both values of the switch, shape (2, words, topics), from expected counts.

    `counts` are n_kw and `keyword_counts` m_kw, both of shape (words, topics); `keywords` are the words of each topic
    by its number; `priors` has b, c, g1 and g2.
    """
    words, topics = counts.shape
    b, c, yes, no = (priors[name] for name in ("b", "c", "yes", "no"))
    found = np.zeros((2, words, topics))
    for k in range(topics):
        topic_keywords = keywords.get(k, [])
        general = sum(counts[w, k] - keyword_counts[w, k] for w in range(words))
        special = sum(keyword_counts[w, k] for w in range(words))
        for w in range(words):
            found[0, w, k] = (counts[w, k] - keyword_counts[w, k] + b) / (general + words * b)
            if topic_keywords:
                found[0, w, k] *= (general + no) / (general + special + yes + no)
            if w in topic_keywords:
                found[1, w, k] = (keyword_counts[w, k] + c) / (special + len(topic_keywords) * c)
                found[1, w, k] *= (special + yes) / (general + special + yes + no)
    return found
