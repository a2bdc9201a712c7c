"""Spelling of names in queries: the nearest known word, if it is close enough to be meant."""

from collections.abc import Iterable
from typing import Final

_LONG_WORD: Final = 7  # Words of this length or more may have two wrong letters.


def find_nearest_word(word: str, known_words: Iterable[str], most: int = 2) -> str:
    """Return the known word that differs least from `word`, or "" if none is close.

    One letter may be wrong, missing, superfluous or swapped with its neighbour; in long words,
    `most`. Digits must agree: `deploy-8` is not `deploy-7`. A wrong suggestion is worse than none.
    """
    most = most if len(word) >= _LONG_WORD else 1
    typed = word.lower()
    nearest, least = "", most + 1
    for known_word in known_words:
        if abs(len(known_word) - len(typed)) >= least or len(typed) <= most:
            continue
        if list(filter(str.isdigit, known_word)) != list(filter(str.isdigit, typed)):
            continue
        distance = _count_edits(typed, known_word.lower())
        if distance < least:
            nearest, least = known_word, distance
    return nearest


def _count_edits(left: str, right: str) -> int:
    """Return how many letters to insert, delete, replace or swap to get the other word."""
    before_last: list[int] = []
    last = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        current = [row]
        for column, other in enumerate(right, 1):
            edits = min(
                last[column] + 1, current[column - 1] + 1, last[column - 1] + (letter != other)
            )
            is_swap = row > 1 and column > 1 and letter == right[column - 2]
            if is_swap and left[row - 2] == other:
                edits = min(edits, before_last[column - 2] + 1)
            current.append(edits)
        before_last, last = last, current
    return last[-1]
