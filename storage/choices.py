"""Names that options of ingesting may have, with what they mean: without the readers, which take long to import."""

from __future__ import annotations

FORMATS = {
    "uci": "UCI bag of words: docword.NAME.txt, plain or .gz, with its vocabulary file",
    "ldac": "LDA-C: a line a document, PAIRS WORD:COUNT ...",
    "mtx": "Matrix Market, documents x words",
    "npz": "SciPy sparse matrix, documents x words",
    "svmlight": "SVMlight: a line a document, LABEL INDEX:COUNT ..., with a vocabulary file",
    "text": "plain text files, folders or globs of them; a file is a document",
    "jsonl": "JSON lines with an id and a text",
    "csv": "comma-separated values with a header (.tsv: tabs); without a column of ids, documents are numbered",
    "parquet": "Parquet with a column of text; folders such as year=1987 are a column too",
    "mallet": "MALLET's text: a line a document, NAME LABEL TEXT",
    "vectors": "dense vectors: comma-separated values, .npy, .npz, or a Zarr array",
}
BAD_BYTES = ("error", "replace")
SCORES = {"npmi": 0.5, "count": 10.0}  # of phrases, with their thresholds
