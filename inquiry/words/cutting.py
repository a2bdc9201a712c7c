"""What a word is. One function cuts documents and questions alike, so both databases are only asked for whole words.

NFKC, casefold, runs of letters and digits; everything else divides (`_ . / - :` among it). What no reader can see
(zero-width characters, soft hyphens, selectors) neither divides nor counts, so it hides no word. Ideographs and
hiragana, which are written without blanks, are a word each.
"""

import re
import unicodedata
from typing import Final

LONGEST: Final = 64  # characters of a word; a longer run of letters is known by its first ones

# What each of the first 128 characters becomes: a blank divides. Three times as fast as an expression.
_ASCII: Final = "".join(one.lower() if one.isalnum() else " " for one in map(chr, range(128)))
_ALONE: Final = "\u3005-\u3007\u3041-\u3096\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
RUNS: Final = re.compile(rf"(?=[{_ALONE}])[^\W_]|[^\W_{_ALONE}]+")
# Unicode's "default ignorable" characters; U+115F, U+1160, U+3164 and U+FFA0 are letters that are drawn as nothing.
_IGNORED: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)


def cut(text: str) -> list[str]:
    """The words of `text` in their order, repetitions included; each of 1 to LONGEST letters and digits.

    Every word is itself when it is cut again.
    """
    if text.isascii():
        words = text.translate(_ASCII).split()
        return words if max(map(len, words), default=0) <= LONGEST else [word[:LONGEST] for word in words]
    return [run[:LONGEST] for run in RUNS.findall(_levelled(text))]


def distinct(text: str) -> frozenset[str]:
    """The same words, each once and in no order, in half the time."""
    if text.isascii():
        words = frozenset(text.translate(_ASCII).split())
        return words if max(map(len, words), default=0) <= LONGEST else frozenset(word[:LONGEST] for word in words)
    plain, other = list[str](), list[str]()
    for chunk in text.split():  # what is blank divides, and is no part of any letter beside it
        (plain if chunk.isascii() else other).append(chunk)
    return distinct(" ".join(plain)).union(cut(" ".join(other)))


def _levelled(text: str) -> str:
    """`text` with its letters in the one form in which they are compared."""
    seen = _IGNORED.sub("", unicodedata.normalize("NFKC", text))
    # A capital İ folds to an i with a dot above, two characters of which the second is no letter.
    return unicodedata.normalize("NFKC", seen.casefold().replace("i\u0307", "i"))
