"""
Dashboard page
==============

A Dask scheduler that runs a fit has a page ``/collapsium`` on its dashboard. It shows the score, the sizes of the
topics, the seconds of each sweep, where the time goes, and the memory of the workers, while the fit runs.
"""

# sphinx_gallery_capture_repr = ()
from pathlib import Path

import pandas as pd
from dask.distributed import LocalCluster

from collapsium.pipeline import fit, ingest, plot, sample_texts, split

texts = pd.DataFrame(sample_texts())
texts[texts["kind"] == "annual"].to_json("texts.jsonl", orient="records", lines=True)
ingest("texts.jsonl", "corpus", min_documents=5, max_document_share=0.2, shard_tokens=10000)
split("corpus", "train", "heldout", fraction=0.1)

cluster = LocalCluster(
    n_workers=2,
    threads_per_worker=1,
    processes=False,
    protocol="tcp://",
    host="127.0.0.1",
    dashboard_address="127.0.0.1:0",
)
fit("train", "library", family="hdp", topics=40, iterations=60, heldout="heldout", scheduler=cluster.scheduler_address)

# %%
# The address of the page. `collapsium fit --scheduler local` prints it when a fit begins.

page = cluster.dashboard_link.replace("/status", "/collapsium")
Path("dashboard.url").write_text(page)

# %%
# `plot` draws the score and the sizes of topics from the run's folder, also after the cluster is closed.

cluster.close()
plot("library", "course.svg", what=["score", "sizes"])
