"""The paper's Reuters subset as JSON lines: ``python -m tests.benchmarks.reuters reuters21578.tar.gz reuters.jsonl``.

Teh, Kurihara and Welling (2007) compare on the news of Reuters-21578 whose topics have more than 300 documents each.
"""

import argparse
import html
import json
import re
import tarfile
from collections import Counter
from pathlib import Path

DOCUMENT = re.compile(r"<REUTERS [^>]*NEWID=\"(\d+)\".*?</REUTERS>", re.DOTALL)
TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>")
NAME = re.compile(r"<D>(.*?)</D>")
PARTS = re.compile(r"<(TITLE|BODY)>(.*?)</\1>", re.DOTALL)


def documents(archive):
    """Number, topics and text (title and body) of each document of the archive, in its order."""
    with tarfile.open(archive) as files:
        for member in sorted((one for one in files if one.name.endswith(".sgm")), key=lambda one: one.name):
            content = files.extractfile(member).read().decode("latin-1")
            for found in DOCUMENT.finditer(content):
                topics = NAME.findall("".join(TOPICS.findall(found[0])))
                text = "\n".join(html.unescape(part) for _, part in PARTS.findall(found[0]))
                yield int(found[1]), topics, text


def main():
    """Write the documents with a text and a topic of more than 300."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive")
    parser.add_argument("lines", type=Path)
    parser.add_argument("--more-than", type=int, default=300, help="documents of a topic (default: 300)")
    given = parser.parse_args()
    found = [one for one in documents(given.archive) if one[2].strip()]
    counts = Counter(topic for _, topics, _ in found for topic in set(topics))
    frequent = {topic for topic, count in counts.items() if count > given.more_than}
    kept = [(number, text) for number, topics, text in found if frequent & set(topics)]
    with given.lines.open("w", encoding="utf-8") as lines:
        for number, text in kept:
            lines.write(json.dumps({"id": str(number), "text": text}) + "\n")
    print(f"{len(kept)} documents of {', '.join(sorted(frequent))}")


if __name__ == "__main__":
    main()
