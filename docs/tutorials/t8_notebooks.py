"""
Notebooks
=========

You will watch a fit in a notebook, look at its results as frames and
pictures, and stop and resume it. Each block of code is a cell of a
notebook, which you can download at the end of the page.
"""

# %%
# Texts from a frame
# ------------------
#
# If you name no folder, a fit uses a temporary one. It is removed when
# the model is closed, or when Python frees the model. Until then, all
# functions take the model in place of a run. The same holds for the
# corpora of `ingest`, `split`, `simulate` and `explode`, the models of
# `edit` and the files of `export`. The texts are paragraphs
# of US presidents' annual addresses.

import subprocess
import sys

import matplotlib.pyplot as plt
import pandas as pd

from collapsium.pipeline import (
    fit,
    plot,
    report,
    resume,
    sample_texts,
    topics,
)

texts = pd.DataFrame(sample_texts())
texts = texts[texts.kind == "annual"]
reading = {
    "labels": ["president"],
    "min_documents": 5,
    "max_document_share": 0.2,
}
model = fit(texts, family="hdp", topics=20, iterations=60, **reading)
model

# %%
# A model on the last line of a cell is shown as a table of its topics.
#
# Frames
# ------

topics_frame = model.topics()
topics_frame.head()

# %%
# Mean proportions by president, for the three largest topics. The frame
# has the index of the texts:

shares = model.document_topics()
shares.groupby(texts.president).mean()[topics_frame.index[:3]].round(
    3
).head()

# %%
# The same results as arrays: topics x words, and documents x topics.

model.topic_word.shape, model.document_topic.shape

# %%
# Live curves
# -----------
#
# `sinks` are functions that receive each event of the fit as a dict.
# After every tenth iteration, this one draws a curve of the fraction of
# tokens that moved between topics. In a notebook, replace
# the previous picture with ``IPython.display.clear_output(wait=True)``
# and ``display(figure)``.

changes = []
figure, axis = plt.subplots(figsize=(6, 2.5), layout="constrained")


def draw(event):
    """Add an iteration to the curve."""
    if event["event"] == "iteration":
        changes.append(event["change"])
        if len(changes) % 10 == 0:
            axis.clear()
            axis.semilogy(changes)
            axis.set(xlabel="iteration", ylabel="change")


fit(
    texts,
    "run",
    family="lda",
    topics=20,
    iterations=60,
    sinks=[draw],
    **reading,
)

# %%
# Stop and resume
# ---------------
#
# *Interrupt kernel* in the notebook's menu stops a fit. If the fit has
# a folder, its last complete iteration is saved. `resume` continues the
# fit, with more iterations if you wish. The result is bit-identical to
# a fit without interruption.

resume("run", iterations=80)

# %%
# Progress as text
# ----------------
#
# `fit` and `watch` show a live view in a terminal. In a notebook,
# ``!collapsium watch run --once`` prints the state of a run. The next
# cell does the same in plain Python.

command = [
    sys.executable,
    "-m",
    "collapsium.pipeline",
    "watch",
    "run",
    "--once",
]
print(
    subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout
)

# %%
# Pictures
# --------

plot("run", "map.svg", what=["map"])

# %%
# A report is an HTML file. ``IPython.display.IFrame("report.html",
# width="100%", height=600)`` shows it in a cell.

report("run", "report.html")
len(topics("run"))

# %%
# Where to go next
# ----------------
#
# * :doc:`/howto/monitoring`: dashboards, and runs on other machines.
# * :doc:`t7_scikit_learn`: estimators instead of functions.
