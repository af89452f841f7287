"""Reuters-21578 as JSON lines: ``python -m tests.benchmarks.reuters reuters21578.tar.gz reuters.jsonl``.

Teh, Kurihara and Welling (2007) use the news items whose topics have more than 300 documents each. ``--modapte
test.jsonl`` writes the training and test parts of the ModApte split, with documents that have topics, and their topics
and places. ``--octis FOLDER`` writes two data sets for ``tests.benchmarks.topics``: the news items with a single
topic, and their titles as short texts.
"""

import argparse
import html
import json
import re
import tarfile
from collections import Counter
from pathlib import Path

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS as STOP

DOCUMENT = re.compile(r"<REUTERS [^>]*NEWID=\"(\d+)\".*?</REUTERS>", re.DOTALL)
TOPICS, PLACES = (re.compile(f"<{name}>(.*?)</{name}>") for name in ("TOPICS", "PLACES"))
PART = re.compile(r"<REUTERS TOPICS=\"YES\" LEWISSPLIT=\"(TRAIN|TEST)\"")
NAME = re.compile(r"<D>(.*?)</D>")
PARTS = re.compile(r"<(TITLE|BODY)>(.*?)</\1>", re.DOTALL)
WORD = re.compile(r"[a-z]{3,}")
MIN_DOCUMENTS = 5
"""Documents in which a word of an OCTIS data set occurs at least."""


def documents(archive):
    """Yield the number, topics, text (title and body), places and split of each document, in the archive's order."""
    with tarfile.open(archive) as files:
        for member in sorted((file for file in files if file.name.endswith(".sgm")), key=lambda file: file.name):
            content = files.extractfile(member).read().decode("latin-1")
            for found in DOCUMENT.finditer(content):
                topics, places = (NAME.findall("".join(pattern.findall(found[0]))) for pattern in (TOPICS, PLACES))
                part = PART.match(found[0])
                text = "\n".join(html.unescape(part) for _, part in PARTS.findall(found[0]))
                yield int(found[1]), topics, text, places, part and part[1]


def main():
    """Write the documents with a text and a topic of more than 300."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive")
    parser.add_argument("lines", type=Path)
    parser.add_argument(
        "--modapte", type=Path, metavar="TEST", help="file for the test part; LINES is the training part"
    )
    parser.add_argument("--octis", type=Path, metavar="FOLDER", help="folder of data sets; LINES is not written")
    parser.add_argument("--more-than", type=int, default=300, help="documents of a topic (default: 300)")
    arguments = parser.parse_args()
    found = [document for document in documents(arguments.archive) if document[2].strip()]
    if arguments.modapte:
        for name, path in (("TRAIN", arguments.lines), ("TEST", arguments.modapte)):
            print(
                f"{write(path, [newswire for newswire in found if newswire[4] == name and newswire[1]], True)} documents in {path}"
            )
        return
    counts = Counter(topic for newswire in found for topic in set(newswire[1]))
    frequent = {topic for topic, count in counts.items() if count > arguments.more_than}
    if arguments.octis:
        alone = [newswire for newswire in found if len(newswire[1]) == 1 and newswire[1][0] in frequent]
        write_octis(arguments.octis / "Reuters", alone, lambda text: text)
        write_octis(arguments.octis / "Reuters-titles", alone, lambda text: text.partition("\n")[0])
        print(f"{len(alone)} documents of {len({newswire[1][0] for newswire in alone})} topics in {arguments.octis}")
        return
    kept = write(arguments.lines, [newswire for newswire in found if frequent & set(newswire[1])], False)
    print(f"{kept} documents of {', '.join(sorted(frequent))}")


def write(path, kept, labelled):
    """Write documents as JSON lines, with topics and places if requested; return their number."""
    with path.open("w", encoding="utf-8") as lines:
        for number, topics, text, places, _ in kept:
            more = {"topics": topics, "places": places} if labelled else {}
            lines.write(json.dumps({"id": str(number), "text": text, **more}) + "\n")
    return len(kept)


def write_octis(folder, kept, part_of):
    """Write a part of each text in the format of OCTIS, with the topic as label; all documents are both fitted and
    evaluated."""
    texts = [[word for word in WORD.findall(part_of(text).lower()) if word not in STOP] for _, _, text, _, _ in kept]
    counts = Counter(word for text in texts for word in set(text))
    words = sorted(word for word, count in counts.items() if count >= MIN_DOCUMENTS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocabulary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    rows = (f"{' '.join(text)}\ttrain\t{newswire[1][0]}" for text, newswire in zip(texts, kept, strict=True))
    (folder / "corpus.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
