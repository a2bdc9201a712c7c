"""Letters that look alike, by the tables of Unicode TR 39, and the scripts of letters. Pure.

The tables come from `confusable_homoglyphs` (45 ms to load, at the first text beyond ASCII or the
first skeleton). Two texts with one skeleton look alike to a reader.
"""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

_IGNORABLE: Final = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f")
_HYPHENS: Final = frozenset("\u2010\u2011\u2012\u2212")  # ordinary in texts, never in a host
_NO_SCRIPT: Final = frozenset(["COMMON", "INHERITED", "Unknown"])
# Scripts that one text mixes: Japanese, Korean and Chinese, also with Latin words.
_EAST_ASIAN: Final = frozenset(["HAN", "HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGUL"])
# Signs that separate the parts of a name. A lookalike of one moves the border of a host.
_SEPARATORS: Final = frozenset("/.:@?#\\")


class OddLetter(NamedTuple):
    """A letter that looks like another: its offset, itself, its script and the lookalike."""

    offset: int
    letter: str
    script: str  # Cyrillic; "" for a sign
    looks_like: str

    def describe(self) -> str:
        """Return its name for readers: `Cyrillic o, U+043E`; the letter itself is not in it."""
        code = f"U+{ord(self.letter):04X}"
        if self.script:
            return f"{self.script} {self.looks_like}, {code}"
        return f"{unicodedata.name(self.letter, 'unnamed').lower()}, {code}"


def compute_skeleton(text: str) -> str:
    """Return what readers see of `text`, as one spelling for all texts that look alike.

    Case, and Latin letters and digits that confuse (l 1 I, O 0, rn m, vv w), do not count.
    """
    if text.isascii():
        table, longer = _ascii_translation()
        letters = text.encode("ascii").translate(table).decode("latin-1")
        for sign, written in longer:
            letters = letters.replace(sign, written)
    else:
        letters = _translate_letters(unicodedata.normalize("NFKD", text))
    return letters.replace("vv", "w").replace("0", "o").replace("1", "l")


def find_odd_letters(text: str, *, in_host: bool = False) -> tuple[OddLetter, ...]:
    """Return the letters of `text` that do not belong to their word and look as if they did.

    A word ends at any sign. Words wholly in one script have none, nor have Latin words with
    Chinese, Japanese or Korean. Between ASCII letters the lookalikes of signs that separate parts
    (∕ for a slash) count too, also signs that nobody sees, and in a host other hyphens.
    """
    if text.isascii():
        return ()
    odd = list(_iterate_odd_signs(text, in_host))
    for start, word in _iterate_words(text):
        odd += _find_odd_in_word(start, word)
    return tuple(sorted(odd))


def find_disguised_words(text: str) -> tuple[str, ...]:
    """Return the words of another script whose every letter looks Latin, as “раура”."""
    if text.isascii():
        return ()
    disguised = []
    for _, word in _iterate_words(text):
        letters = [letter for letter in word if letter.isalpha()]
        scripts = {find_script(letter) for letter in letters}
        if (
            len(letters) >= 3
            and len(scripts) == 1
            and not scripts & {"LATIN", *_EAST_ASIAN, *_NO_SCRIPT}
            and all(_latin_lookalike(letter) for letter in letters)
        ):
            disguised.append(word)
    return tuple(disguised)


@lru_cache(maxsize=4096)
def find_script(letter: str) -> str:
    """Return the script of a letter in capitals: LATIN, CYRILLIC; COMMON for signs."""
    if letter.isascii():
        return "LATIN" if letter.isalpha() else "COMMON"
    from confusable_homoglyphs import categories

    return str(categories.alias(letter))


def _iterate_words(text: str) -> Iterator[tuple[int, str]]:
    start = None
    for offset, letter in enumerate(text):
        if letter.isalnum() or unicodedata.category(letter)[0] == "M" or letter in _IGNORABLE:
            start = offset if start is None else start
        elif start is not None:
            yield start, text[start:offset]
            start = None
    if start is not None:
        yield start, text[start:]


def _find_odd_in_word(start: int, word: str) -> Iterator[OddLetter]:
    if word.isascii():
        return
    scripts = [find_script(letter) if letter.isalpha() else "COMMON" for letter in word]
    if "LATIN" in scripts:
        foreign = [
            OddLetter(start + offset, letter, name.capitalize(), _latin_lookalike(letter))
            for offset, (letter, name) in enumerate(zip(word, scripts, strict=True))
            if name not in ("LATIN", *_NO_SCRIPT, *_EAST_ASIAN)
        ]
        # A word with a letter that nobody reads as Latin, as USBкабель, hides nothing.
        if all(odd.looks_like for odd in foreign):
            yield from foreign
    if any(letter.isascii() and letter.isalpha() for letter in word):
        # Letters that exist only to look like ASCII: fullwidth and mathematical ones.
        for offset, letter in enumerate(word):
            like = unicodedata.normalize("NFKC", letter)
            plain = len(like) == 1 and like.isascii() and not letter.isascii()
            if plain and unicodedata.category(letter) not in ("No", "Lo", "Lm"):
                yield OddLetter(start + offset, letter, "", like)


def _iterate_odd_signs(text: str, in_host: bool) -> Iterator[OddLetter]:
    for offset, letter in enumerate(text):
        if letter.isascii() or letter.isalnum():
            continue
        around = text[max(offset - 1, 0) : offset] + text[offset + 1 : offset + 2]
        is_hidden = letter in _IGNORABLE and around.isascii() and any(map(str.isalnum, around))
        if is_hidden or (in_host and letter in _HYPHENS):
            yield OddLetter(offset, letter, "", "-" if letter in _HYPHENS else "")
            continue
        like = _prototypes().get(letter, "")
        inside = len(around) == 2 and around.isascii() and around.isalnum()
        if like in _SEPARATORS and inside and not around.isdigit():
            yield OddLetter(offset, letter, "", like)


@lru_cache(maxsize=4096)
def _latin_lookalike(letter: str) -> str:
    """Return the ASCII letter or digit that looks like `letter`, or nothing."""
    table = _prototypes()
    like = table.get(letter, "")
    if not like and letter != letter.lower():
        like = table.get(letter.lower(), "")
    return like if like and like.isascii() and like.isalnum() else ""


def _translate_letters(text: str) -> str:
    table = _translation()
    # A second pass: a capital may confuse only as a small letter.
    letters = text.translate(table).lower().translate(table).lower()
    return letters if letters.isascii() else unicodedata.normalize("NFD", letters)


@lru_cache(maxsize=1)
def _ascii_translation() -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """Return a table of `bytes.translate` for ASCII, ten times as fast as `_translate_letters`.

    A letter that becomes several (m: rn) is first a control character, then replaced by them.
    """
    table, longer = bytearray(range(256)), dict[str, int]()
    for code in range(128):
        like = _translate_letters(chr(code))
        fits = len(like) == 1 and like.isascii()
        table[code] = ord(like) if fits else longer.setdefault(like, 0x80 + len(longer))
    return bytes(table), tuple((chr(sign), like) for like, sign in longer.items())


@lru_cache(maxsize=1)
def _translation() -> dict[int, str]:
    """Return the table of `str.translate` that makes a skeleton."""
    table = {ord(letter): like for letter, like in _prototypes().items()}
    return table | dict.fromkeys(map(ord, _IGNORABLE), "")


@lru_cache(maxsize=1)
def _prototypes() -> dict[str, str]:
    """Return the one letter, or letters, that stand for each letter that looks like them.

    The data name a letter's lookalikes in both directions. The letter with several is the
    prototype; of two that only name each other, the first in Unicode's order is.
    """
    from confusable_homoglyphs import confusables

    data = {
        key.strip("\u200e"): [item["c"].strip("\u200e") for item in listed]
        for key, listed in confusables.confusables_data.items()
    }
    table: dict[str, str] = {}
    for letter, listed in data.items():
        if len(letter) != 1 or len(listed) != 1:
            continue  # a prototype itself
        (other,) = listed
        if len(data.get(other, ())) > 1 or (len(other), other) < (1, letter):
            table[letter] = other
    return table
