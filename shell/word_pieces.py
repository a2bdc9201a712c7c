"""Build words of a command from their pieces: quotes, variables, braces, globs. Pure."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from shell.words import Word

MAX_BRACE_WORDS: Final = 64
_GLOB: Final = re.compile(r"[*?]|\[.*\]", re.DOTALL)
_RANGE: Final = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")
_BLANKS: Final = re.compile(r"[ \t\n]+")
_ANSI: Final = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})"
    r"|([0-7]{1,3})|c(.))",
    re.DOTALL,
)
_ANSI_SIGNS: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


class Piece(NamedTuple):
    """A piece of a word. `text` is None if it is only known when the command runs."""

    text: str | None
    quoted: bool = False
    from_variable: bool = False  # its blanks divide words, its braces and quotes mean nothing
    source: str = ""
    prefix: str = ""  # the known beginning of an unknown text


class TooManyWordsError(Exception):
    """Braces make more words than are followed."""


def decode_ansi(text: str) -> str:
    """Return what `$'text'` means in bash. Bytes above 127 stay as characters."""

    def decode(match: re.Match[str]) -> str:
        sign, byte, four, eight, octal, control = match.groups()
        if sign:
            return _ANSI_SIGNS[sign]
        if control:
            return chr(ord(control) & 0x1F)
        number = int(octal, 8) & 0xFF if octal else int(byte or four or eight, 16)
        return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"

    return _ANSI.sub(decode, text)


def split_escapes(text: str) -> list[Piece]:
    """Return the pieces of unquoted text, whose escaped characters are quoted."""
    if "\\" not in text:
        return [Piece(text)]
    pieces: list[Piece] = []
    at = 0
    for match in re.finditer(r"\\(.?)", text, re.DOTALL):
        if match.start() > at:
            pieces.append(Piece(text[at : match.start()]))
        if match[1] != "\n":
            pieces.append(Piece(match[1], quoted=True))
        at = match.end()
    if at < len(text):
        pieces.append(Piece(text[at:]))
    return pieces or [Piece("", quoted=True)]


def unescape_quoted(text: str) -> str:
    """Return text between double quotes without its escapes."""
    return re.sub(r"\\([$`\"\\\n])", lambda match: "" if match[1] == "\n" else match[1], text)


def build_words(pieces: Sequence[Piece], text: str) -> list[Word]:
    """Return the words that the pieces become. Raises TooManyWordsError."""
    if len(pieces) == 1 and pieces[0].text is not None and pieces[0].quoted:
        return [Word(pieces[0].text, text)]
    words: list[Word] = []
    for alternative in _expand_braces(list(pieces)):
        words += _split_fields(alternative, text)
        if len(words) > MAX_BRACE_WORDS:
            raise TooManyWordsError
    return words


def _split_fields(pieces: Iterable[Piece], text: str) -> list[Word]:
    fields: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece.from_variable and not piece.quoted and piece.text is not None:
            parts = _BLANKS.split(piece.text)
            for number, part in enumerate(parts):
                if number:
                    fields.append([])
                if part:
                    fields[-1].append(Piece(part))
        else:
            fields[-1].append(piece)
    return [_join_field(field, text) for field in fields if field]


def _join_field(pieces: Sequence[Piece], text: str) -> Word:
    value = ""
    for piece in pieces:
        if piece.text is None:
            shown = "".join(item.source if item.text is None else item.text for item in pieces)
            splits = any(item.text is None and not item.quoted for item in pieces)
            return Word(None, shown or text, value + piece.prefix, splits)
        value += piece.text
    if "://" in value:  # no file is called like a URL
        return Word(value, text if len(pieces) == 1 else value)
    if any(not piece.quoted and _GLOB.search(piece.text or "") for piece in pieces) or (
        any("[" in (piece.text or "") for piece in pieces if not piece.quoted)
        and "]" in value
        and len(value) > 1
    ):
        prefix = ""
        for piece in pieces:
            match = None if piece.quoted else re.search(r"[*?\[]", piece.text or "")
            if match:
                prefix += (piece.text or "")[: match.start()]
                break
            prefix += piece.text or ""
        return Word(None, value, prefix, splits=True)
    return Word(value, text if len(pieces) == 1 else value)


def _expand_braces(pieces: list[Piece]) -> list[list[Piece]]:
    """Return the alternatives of `{a,b}` and `{1..3}` outside quotes."""
    if not any(
        not piece.quoted and not piece.from_variable and "{" in (piece.text or "")
        for piece in pieces
    ):
        return [pieces]
    signs: list[Piece] = []
    for piece in pieces:
        if piece.quoted or piece.from_variable or piece.text is None:
            signs.append(piece)
        else:
            signs += [Piece(sign) for sign in piece.text]
    return _expand_signs(signs, 0)


def _expand_signs(signs: list[Piece], depth: int) -> list[list[Piece]]:
    if depth > 8:
        raise TooManyWordsError
    for start, piece in enumerate(signs):
        if not _is_sign(piece, "{"):
            continue
        level, commas = 0, []
        for end in range(start, len(signs)):
            if _is_sign(signs[end], "{"):
                level += 1
            elif _is_sign(signs[end], "}"):
                level -= 1
                if level == 0:
                    break
            elif _is_sign(signs[end], ",") and level == 1:
                commas.append(end)
        else:
            continue
        inner = _list_alternatives(signs[start + 1 : end], [comma - start - 1 for comma in commas])
        if inner is None:
            continue
        results: list[list[Piece]] = []
        for alternative in inner:
            results += _expand_signs(signs[:start] + alternative + signs[end + 1 :], depth + 1)
            if len(results) > MAX_BRACE_WORDS:
                raise TooManyWordsError
        return results
    return [signs]


def _is_sign(piece: Piece, sign: str) -> bool:
    return not piece.quoted and not piece.from_variable and piece.text == sign


def _list_alternatives(inner: list[Piece], commas: list[int]) -> list[list[Piece]] | None:
    if commas:
        bounds = [-1, *commas, len(inner)]
        return [inner[before + 1 : after] for before, after in pairwise(bounds)]
    text = "".join(piece.text or "\0" for piece in inner)
    match = _RANGE.fullmatch(text)
    if match is None or match[1].lstrip("-").isdigit() != match[2].lstrip("-").isdigit():
        return None
    numbers = match[1].lstrip("-").isdigit()
    first, last = (int(match[1]), int(match[2])) if numbers else (ord(match[1]), ord(match[2]))
    step = abs(int(match[3] or 1)) or 1
    count = abs(last - first) // step + 1
    if count > MAX_BRACE_WORDS:
        raise TooManyWordsError
    way = step if last >= first else -step
    width = (
        max(len(match[1]), len(match[2]))
        if numbers and re.search(r"^-?0\d", match[1] + " " + match[2])
        else 0
    )
    values = range(first, first + way * count, way)
    return [[Piece(str(value).zfill(width) if numbers else chr(value))] for value in values]
