"""Encoded attachments in texts of mails and news (uuencode, base64, yEnc), which have no words."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Characters of whole lines of base64 from which they are an attachment: three lines of a mail. Words and addresses
# that stand alone on a line are shorter.
LEAST_BASE64 = 180
# Whole lines of uuencode, of 61 characters each, that are an attachment also without its first and last line.
LEAST_UUENCODED = 3

# Cheap searches that nearly all texts fail: the second one skips from one line end to the next.
_SUSPECT = r"(?:M[ -`]{60}|[A-Za-z0-9+/]{60}|=ybegin |begin [0-7]{3})"
_SUSPECT_FIRST_LINE, _SUSPECT_LINE = re.compile(_SUSPECT), re.compile(r"\n" + _SUSPECT)
_DATA_ADDRESS = re.compile(r"\bdata:[\w.+/-]*(?:;[\w=.-]+)*;base64,[A-Za-z0-9+/=%]+")
_UUENCODED_BEGIN = re.compile(r"begin [0-7]{3,4} \S.*")
_FULL_UUENCODED = re.compile(r"M[ -`]{60,61}")
_STRIPPED_UUENCODED = re.compile(r"M[ -`]{30,61}")
_UUENCODED = re.compile(r"[ -`]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{58,}={0,2}")
_LAST_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def without_attachments(text: str) -> tuple[str, int]:
    """Return a text without its encoded attachments, and how many there were."""
    removed = 0
    if ";base64," in text:
        text, removed = _DATA_ADDRESS.subn("", text)
    if _SUSPECT_FIRST_LINE.match(text) is None and _SUSPECT_LINE.search(text) is None:
        return text, removed
    lines, retained, place = text.split("\n"), list[str](), 0
    bare = [line.rstrip("\r") for line in lines]
    while place < len(lines):
        end = _end_of_attachment(bare, place)
        if end == place:
            retained.append(lines[place])
            place += 1
        else:
            removed += 1
            place = end
    return "\n".join(retained), removed


def _end_of_attachment(lines: Sequence[str], place: int) -> int:
    """Return the line after the attachment that begins at a line; the line itself if none does."""
    if lines[place].startswith("=ybegin "):
        ends = (number for number in range(place, len(lines)) if lines[number].startswith("=yend"))
        return next(ends, len(lines) - 1) + 1
    if _UUENCODED_BEGIN.fullmatch(lines[place]):
        end = _end_of_uuencoded(lines, place + 1)
        closed = end > place + 1 and lines[end - 1] == "end"
        return end if closed or end - place > LEAST_UUENCODED else place
    first = lines[place : place + LEAST_UUENCODED]
    if len(first) == LEAST_UUENCODED and all(map(_FULL_UUENCODED.fullmatch, first)):
        return _end_of_uuencoded(lines, place)
    return _end_of_base64(lines, place)


def _end_of_uuencoded(lines: Sequence[str], place: int) -> int:
    """Return the line after the lines of uuencode from a line on, with those that close them."""
    while place < len(lines) and _is_uuencoded(lines[place]):
        place += 1
    if place < len(lines) and lines[place] in ("", " ", "`") and lines[place + 1 : place + 2] == ["end"]:
        return place + 2
    return place + 1 if lines[place : place + 1] == ["end"] else place


def _is_uuencoded(line: str) -> bool:
    """Return whether a line is as long as its first character says, or a whole one that lost spaces at its end."""
    if _STRIPPED_UUENCODED.fullmatch(line):
        return True
    if not line or not _UUENCODED.fullmatch(line):
        return False
    groups = -(-((ord(line[0]) - 32) & 63) // 3)
    # Some encoders put a checksum behind each line.
    return groups > 0 and len(line) in (1 + 4 * groups, 2 + 4 * groups)


def _end_of_base64(lines: Sequence[str], place: int) -> int:
    """Return the line after lines of base64 of one length, and a shorter one that ends them."""
    end, width = place, len(lines[place])
    while end < len(lines) and len(lines[end]) == width and _BASE64.fullmatch(lines[end]):
        end += 1
    if end == place:
        return place
    last = lines[end] if end < len(lines) else ""
    ends = len(last) < width and len(last) % 4 == 0 and _LAST_BASE64.fullmatch(last) is not None
    data = "".join(lines[place : end + ends])
    # Sequences of proteins and numbers in hexadecimal lack one of the three.
    mixed = all(re.search(kind, data) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return end + ends if mixed and len(data) >= LEAST_BASE64 else place
