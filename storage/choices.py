"""Values of options of an ingest, with descriptions; separate from the readers, which take long to import."""

from __future__ import annotations

FORMATS = {
    "uci": "UCI bag of words: docword.NAME.txt or .txt.gz, and a vocabulary file",
    "ldac": "LDA-C: one line for each document, PAIRS WORD:COUNT ...",
    "mtx": "Matrix Market, documents x words",
    "npz": "SciPy sparse matrix, documents x words",
    "svmlight": "SVMlight: one line for each document, LABEL INDEX:COUNT ...",
    "text": "plain text: files, folders or globs; each file is a document",
    "jsonl": "JSON lines with an id and a text",
    "csv": "table with a header; commas, semicolons, tabs or bars",
    "parquet": "Parquet with a column of text; folders year=1987 are a column",
    "mallet": "MALLET's text: one line for each document, NAME LABEL TEXT",
    "vectors": "dense vectors: separated values, .npy, .npz, or a Zarr array",
}
BAD_BYTES = ("error", "replace")
SCORES = {"npmi": 0.5, "count": 10.0}  # of phrases, with their thresholds
