"""Matches of words in texts: by the words, or by their keyed digests. Pure.

Letter case, Unicode form and white space do not count. A match begins and ends where no letter or
digit continues it: `ann` is not in `annual`. Escapes of JSON and of URLs are read too, as in
`jos\\u00e9` and `jane%40example.com`. A digest of a word finds the word again without naming it:
the erasure journal holds only digests (erasure/erasure_journal.py).
"""

import hashlib
import hmac
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

ERASED: Final = "[erased]"
MIN_WORD_CHARACTERS: Final = 3
MAX_WORD_CHARACTERS: Final = 200
MAX_WORDS: Final = 20
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrtbf\"\\/]))")
_RUN: Final = re.compile(r"[^\W_]+")
_BLANKS: Final = re.compile(r"\s+")
_PLAIN: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
MARK_SEPARATOR: Final = "\t"  # of order keys (journal/order_keys.py), which stay


class Matcher(Protocol):
    """Decides whether a text contains one of the words."""

    def matches_text(self, text: str) -> bool:
        """Return True if the text contains a word."""


def normalize_text(text: str) -> str:
    """Return the form in which texts and words are compared."""
    if text.isascii():
        return _BLANKS.sub(" ", text.lower())
    return _BLANKS.sub(" ", unicodedata.normalize("NFKC", text).casefold())


def list_forms(text: str) -> list[str]:
    """Return the normal forms of a text: as it is, and with escapes read."""
    forms = [normalize_text(text)]
    if "\\" in text:
        once = _ESCAPE.sub(_read_escape, text)
        forms.append(normalize_text(once))
        if "\\" in once:
            forms.append(normalize_text(_ESCAPE.sub(_read_escape, once)))
    if "%" in text:
        forms.append(normalize_text(unquote(text)))
    return list(dict.fromkeys(forms))


def _read_escape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _PLAIN.get(match[2], match[2])


class WordMatcher:
    """Matches the words themselves."""

    def __init__(self, words: Collection[str]) -> None:
        self.words = [word for word in words if normalize_text(word).strip()]
        choices = "|".join(re.escape(normalize_text(word).strip()) for word in self.words)
        self._pattern = re.compile(rf"(?<![^\W_])(?:{choices})(?![^\W_])") if choices else None

    def matches_text(self, text: str) -> bool:
        """Return True if the text contains a word."""
        pattern = self._pattern
        return pattern is not None and any(pattern.search(form) for form in list_forms(text))


class DigestMatcher:
    """Matches words of which only length and keyed digest remain."""

    def __init__(self, digests: Iterable[Mapping[str, Any]], pepper: bytes) -> None:
        self._pepper = pepper
        self._by_length: dict[int, set[str]] = defaultdict(set)
        for row in digests:
            self._by_length[int(row["length"])].add(str(row["digest"]))

    def matches_text(self, text: str) -> bool:
        """Return True if the text contains a word."""
        return any(self._matches_form(form) for form in list_forms(text))

    def _matches_form(self, form: str) -> bool:
        size = len(form)
        for start in range(size):
            if start and form[start - 1].isalnum():
                continue
            for length, digests in self._by_length.items():
                end = start + length
                if end > size or (end < size and form[end].isalnum()):
                    continue
                if _digest_form(form[start:end], self._pepper) in digests:
                    return True
        return False


def digest_word(word: str, pepper: bytes) -> dict[str, Any]:
    """Return length and keyed digest of a word, as requests and the erasure journal hold them."""
    form = normalize_text(word).strip()
    return {"length": len(form), "digest": _digest_form(form, pepper)}


def _digest_form(form: str, pepper: bytes) -> str:
    message = b"erasure\0" + form.encode("utf-8", "surrogatepass")
    return hmac.digest(pepper, message, hashlib.sha256).hex()


def list_spellings(word: str) -> list[list[str]]:
    """Return for each run of letters and digits of a word how a database may store it.

    A text that contains the word contains one spelling of every run, however the signs between them
    are escaped; LIKE ignores the letter case of ASCII. A text with all of them need not match.
    """
    runs = _RUN.findall(unicodedata.normalize("NFC", word)) or [word.strip()]
    return [_list_run_spellings(run) for run in dict.fromkeys(runs)]


def _list_run_spellings(run: str) -> list[str]:
    if run.isascii():
        return [run]
    cases = {run, run.lower(), run.upper(), run.title(), run.casefold()}
    cases |= {unicodedata.normalize(form, case) for case in cases for form in ("NFD", "NFKC")}
    spellings: dict[str, None] = {}
    for case in sorted(cases):
        escaped = json.dumps(case)[1:-1]
        for spelling in (case, escaped, json.dumps(escaped)[1:-1], quote(case)):
            spellings[spelling] = None
    return list(spellings)


def matches_value(value: Any, matches: Callable[[str], bool]) -> bool:
    """Return True if a JSON value contains a matching text, number or name of a field."""
    if isinstance(value, str):
        return matches(value)
    if isinstance(value, Mapping):
        return any(
            matches(str(name)) or matches_value(part, matches) for name, part in value.items()
        )
    if isinstance(value, list | tuple):
        return any(matches_value(part, matches) for part in value)
    return type(value) in (int, float) and matches(str(value))


def erase_value(value: Any, matches: Callable[[str], bool]) -> Any:
    """Return a JSON value with `[erased]` for every matching text, number and name of a field.

    Order keys stay: a later fact is compared with them.
    """
    if isinstance(value, str):
        return ERASED if MARK_SEPARATOR not in value and matches(value) else value
    if isinstance(value, Mapping):
        erased: dict[str, Any] = {}
        for name, part in value.items():
            kept = str(name)
            if matches(kept):
                kept = f"{ERASED[:-1]} {len(erased)}]"
            erased[kept] = erase_value(part, matches)
        return erased
    if isinstance(value, list | tuple):
        return [erase_value(part, matches) for part in value]
    if type(value) in (int, float) and matches(str(value)):
        return ERASED
    return value
