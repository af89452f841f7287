"""Make the picture of the README and of the documentation's first page: `python -m docs.images.addresses`."""

import tempfile
from pathlib import Path

import pandas as pd

from collapsium.pipeline import fit, plot, sample_texts

OUT = Path(__file__).with_suffix(".png")
TOPICS = (13, 3, 2, 9, 6)

with tempfile.TemporaryDirectory() as folder:
    run, picture = f"{folder}/addresses", f"{folder}/{OUT.name}"
    texts = pd.DataFrame(sample_texts()).query("kind == 'annual'")
    fit(
        texts,
        run,
        family="lda",
        topics=20,
        id="id",
        title="title",
        date="year",
        labels=["address"],
        min_documents=5,
        max_document_share=0.2,
    )
    title = "Topics of US presidents' annual addresses to Congress, with 95% intervals clustered by address"
    plot(run, picture, what=["time"], period="5 years", cluster="address", topics=TOPICS, title=title)
    OUT.write_bytes(Path(picture).read_bytes())
print(f"{OUT}: {OUT.stat().st_size:,} bytes")
