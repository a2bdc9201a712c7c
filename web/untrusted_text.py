"""Render agents' text as inert markup, from escaped parts only.

Anything that could hide text from a reader becomes a token: control and format characters,
bidirectional overrides, zero-width and other ignorable characters, unusual blanks, stacked or stray
combining marks, long blank runs. So what a person sees is complete; `split_untrusted` loses
nothing.

The no-break and thin spaces of typography ("24 000 €", "vraiment ?") are ordinary blanks in prose,
and hidden characters in commands, paths, hosts, refs and code, where they change what runs. Callers
say which of both a text is (`prose`).
"""

import html
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from django.utils.html import conditional_escape
from django.utils.safestring import SafeString

MAX_CHARACTERS = 4096
MAX_HEAD_CHARACTERS = 160  # of a text cut in the middle
TAIL_CHARACTERS = 14
MIN_TAIL_CHARACTERS, MAX_TAIL_CHARACTERS = 6, 26  # of a tail that is a whole name
BLANK_RUN = 64
# Characters that count as letters but are invisible.
_IGNORABLE = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x1D159),
        *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    ]
)
_HIDDEN_CATEGORIES = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"])
_MARKS = frozenset(["Mn", "Me"])
_STACK = 4  # maximum of combining marks on one letter; no living script needs more
_PRESENTATION = frozenset("\ufe0e\ufe0f")  # selects the text or emoji form of the sign before
# Categories of signs with both forms; "<", "+" and the like are in them, but have only one.
_SIGNS = frozenset(["So", "Sm"])
_SIGNS_TOO = frozenset("\u203c\u2049")  # double exclamation mark, exclamation question mark
_ON_KEYS = frozenset("0123456789#*")
_KEYCAP = "\u20e3"  # draws a key around the digit before the selector
_JOINER = "\u200d"  # joins two pictures into one
# No-break, narrow no-break, thin, hair and figure space.
TYPOGRAPHIC_SPACES = frozenset("\u00a0\u202f\u2009\u200a\u2007")
# Before these a space is typography whatever stands before it: “report.pdf : 3 files”.
_SPACED_SIGNS = frozenset(";:!?%»›€$£°–—")
_MARKUP_TAG = re.compile(r"</?\w+[^<>]*>|<[^<>]*$|^[^<>]*>")
_SIGNS_OF_CODE = re.compile(r"[/\\$=|<>{}`]|^-+\w")
_SIGNS_OF_COMMANDS = re.compile(r"[\\$=|<>{}`;&~^*#]|/|(?:^|\s)-+\w")
_MIN_PROSE_WORDS = 4
_NAMES = {
    "\x00": "NULL",
    "\x1b": "ESCAPE",
    "\r": "CARRIAGE RETURN",
    "\x07": "BELL",
    "\x08": "BACKSPACE",
    "\x7f": "DELETE",
}
_BLANKS = r"[ \t\n]{%d,}|\t{16,}|\n{12,}"
# Letters of Europe, dashes, quotes and the ellipsis are visible and never part of a picture. All
# other characters beyond ASCII are checked one by one, which takes ten times as long as the rest.
_SEEN = r"\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u2013\u2014\u2018\u2019\u201c-\u201e\u2026"
_UNUSUAL = rf"[^\x20-\x7e\n\t{_SEEN}]+"
_PAGE = re.compile(rf"{_BLANKS % BLANK_RUN}|{_UNUSUAL}")
_LINE = re.compile(rf"[ ]{{8,}}|[\n\t]+|{_UNUSUAL}")

_LONG_BLANK = 8 * " "

_MARKUP = re.compile("[&<>\"']").search  # hardly any part has markup: half the time


def format_markup(form: str, *parts: str) -> SafeString:
    """Format like `format_html`, but faster; `form` must be a literal of ours."""
    for part in parts:
        if not isinstance(part, SafeString) and _MARKUP(part):
            return SafeString(form.format(*map(conditional_escape, parts)))
    return SafeString(form.format(*parts))


class TextPiece(NamedTuple):
    """A part of the text: `raw` as sent, `shown` its token or ""."""

    raw: str
    shown: str
    title: str
    hidden: bool  # true for invisible characters, false for plain blanks


def split_untrusted(
    text: str, *, one_line: bool = False, prose: bool = False
) -> Iterator[TextPiece]:
    """Split `text` into pieces that join to it; `one_line` replaces breaks.

    In `prose` the spaces of typography are plain text.
    """
    start = 0
    for match in (_LINE if one_line else _PAGE).finditer(text):
        if match.start() > start:
            yield TextPiece(text[start : match.start()], "", "", False)
        start = match.end()
        run = match[0]
        if run[0] in " \t\n":
            yield _blank(run)
        else:
            yield from _unusual(
                run, text[match.start() - 1 : match.start()], text if prose else "", match.start()
            )
    if start < len(text):
        yield TextPiece(text[start:], "", "", False)


def count_hidden_characters(text: str, *, prose: bool = False) -> int:
    """Count the characters of `text` that a plain page would not show."""
    return sum(len(piece.raw) for piece in split_untrusted(text, prose=prose) if piece.hidden)


def is_prose(text: str) -> bool:
    """Return True if a text of unknown purpose reads as prose: words, and no sign of a command.

    A few words could be a command: “git push origin”.
    """
    if _SIGNS_OF_COMMANDS.search(text):
        return False
    words = re.findall(r"[^\W\d_]{2,}", text)
    return len(words) >= _MIN_PROSE_WORDS or not re.search(r"[^\W\d_]\s+[^\W\d_]{2}", text)


def render_untrusted(
    text: str, limit: int | None = MAX_CHARACTERS, *, prose: bool = False
) -> SafeString:
    """Return `text` as inert markup, cut after `limit` characters."""
    return _join(text, limit, one_line=False, prose=prose)


def render_untrusted_line(text: str, limit: int = 120, *, prose: bool = False) -> SafeString:
    """Return `text` as inert markup on one line; a line break becomes a sign."""
    return _join(text, limit, one_line=True, prose=prose)


def name_hidden_characters(text: str) -> str:
    """Return `text` on one line without markup, hidden characters as tokens: for attributes."""
    if _LINE.search(text) is None:
        return text
    return "".join(piece.shown or piece.raw for piece in split_untrusted(text, one_line=True))


def find_tail_start(text: str) -> int:
    """Return where the tail of a text begins, never inside a combined character."""
    at = len(text) - min(TAIL_CHARACTERS, len(text) // 2)
    end = len(text) - 1
    named = max(text.rfind("@", 0, end), text.rfind("/", 0, end))
    if MIN_TAIL_CHARACTERS <= len(text) - named <= MAX_TAIL_CHARACTERS:
        at = named + 1 if text[named] == "@" else named
    while at < len(text) and at and unicodedata.combining(text[at]):
        at -= 1
    return at


def cut_middle(text: str, most: int) -> str:
    """Return `text` in at most `most` characters: its head, `…` and a third to a half as tail."""
    if len(text) <= most:
        return text
    start = min(find_tail_start(text), len(text) - most // 3)
    start = max(start, len(text) - most // 2)
    return f"{text[: most - 1 - (len(text) - start)]}…{text[start:]}"


def render_marked(
    text: str,
    marked: Collection[int],
    limit: int | None = None,
    *,
    one_line: bool = False,
    prose: bool = False,
    style: str = "odd",
) -> SafeString:
    """Return `text` as inert markup with the characters at the offsets `marked` set apart.

    `limit`, `one_line` and `prose` are as in the other functions.
    """
    end = len(text) if limit is None else limit
    parts, start = [], 0
    for at in sorted(offset for offset in set(marked) if 0 <= offset < min(end, len(text))):
        parts.append(_join(text[start:at], None, one_line=one_line, prose=prose))
        letter = _join(text[at], None, one_line=one_line, prose=prose)
        parts.append(format_markup('<mark class="{}">{}</mark>', style, letter))
        start = at + 1
    rest = None if limit is None else end - start
    parts.append(_join(text[start:], rest, one_line=one_line, prose=prose))
    return SafeString("".join(parts))


def render_numbered_lines(text: str, *, prose: bool = False) -> SafeString:
    """Return all of `text` as inert markup, each line in an element with its number.

    A counted run of blanks with line breaks ends a line; numbering continues after it.
    """
    elements: list[str] = []
    line: list[str] = []
    number = reached = 1  # the line being written, and the line that the text has reached

    def end() -> None:
        nonlocal number
        elements.append(f'<span class="ln" data-n="{number}">{"".join(line)}</span>')
        line.clear()
        number = reached

    for piece in split_untrusted(text, prose=prose):
        breaks = piece.raw.count("\n")
        if piece.shown:
            line.append(_markup(piece))
            reached += breaks
            if breaks:
                end()
            continue
        *complete, last = piece.raw.split("\n")
        for part in complete:
            reached += 1
            line.append(html.escape(part) + "\n")
            end()
        if last:
            line.append(html.escape(last))
    if line or not elements:
        end()
    return SafeString("".join(elements))


def render_marked_words(text: str, spans: Sequence[tuple[int, int]], tag: str) -> SafeString:
    """Return all of `text` as inert markup, its spans in elements named `tag`.

    `spans` are offsets in ascending order. A token belongs to the span in which it starts.
    """
    elements: list[str] = []
    if _PAGE.search(text) is None:
        at = 0
        for start, end in spans:
            elements += (
                html.escape(text[at:start]),
                f"<{tag}>{html.escape(text[start:end])}</{tag}>",
            )
            at = end
        return SafeString("".join((*elements, html.escape(text[at:]))))
    at = 0
    bounds = [offset for span in spans for offset in span]  # inside a span after an odd number
    passed = 0
    for piece in split_untrusted(text):
        until = at + len(piece.raw)
        while passed < len(bounds) and bounds[passed] < until:
            if bounds[passed] > at and not piece.shown:
                elements.append(html.escape(text[at : bounds[passed]]))
                at = bounds[passed]
            elements.append(f"</{tag}>" if passed % 2 else f"<{tag}>")
            passed += 1
        elements.append(_markup(piece) if piece.shown else html.escape(text[at:until]))
        at = until
    elements.append(f"</{tag}>" if passed % 2 else "")
    return SafeString("".join(elements))


def utf8_length(text: str) -> int:
    """Return the UTF-8 size of `text`, counting a lone surrogate as three bytes."""
    return len(text.encode("utf-8", "surrogatepass"))


def _join(text: str, limit: int | None, *, one_line: bool, prose: bool) -> SafeString:
    head = text if limit is None else text[:limit]
    # Most texts are so plain that no pattern is needed, which takes longer than all else.
    # Summaries end with "…" where they are cut.
    bare = head.removesuffix("…")
    is_plain = bare.isascii() and bare.isprintable() and _LONG_BLANK not in bare
    if is_plain or (_LINE if one_line else _PAGE).search(head) is None:
        shown = SafeString(html.escape(head) if _MARKUP(head) else head)
    else:
        pieces = split_untrusted(head, one_line=one_line, prose=prose)
        shown = SafeString("".join(map(_markup, pieces)))
    if len(head) == len(text):
        return shown
    rest = utf8_length(text[len(head) :])
    if one_line:
        return format_markup(
            '{}<span class="token is-quiet" title="{} more bytes">…</span>', shown, str(rest)
        )
    return format_markup(
        '{}<span class="token is-quiet">[cut here: {} more bytes]</span>', shown, f"{rest:,}"
    )


def _markup(piece: TextPiece) -> SafeString:
    if not piece.shown:
        return SafeString(html.escape(piece.raw))
    kind = "token" if piece.hidden else "token is-quiet"
    if piece.title:
        return format_markup(
            '<span class="{}" title="{}">{}</span>', kind, piece.title, piece.shown
        )
    return format_markup('<span class="{}">{}</span>', kind, piece.shown)


def _blank(run: str) -> TextPiece:
    """Return the token of a counted run of spaces, tabs and line breaks."""
    if len(run) < 8:
        return TextPiece(run, run.replace("\n", "↵").replace("\t", "⇥"), "", False)
    counts = [(run.count(" "), "space"), (run.count("\t"), "tab"), (run.count("\n"), "line break")]
    words = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    return TextPiece(run, f"[{', '.join(words)}]", "", False)


def _joins(before: str, after: str) -> bool:
    """True between two pictures, as in a family, where a joiner hides nothing."""
    picture = (
        unicodedata.category(before) == "So"
        or before == "\ufe0f"
        or "\U0001f3fb" <= before <= "\U0001f3ff"
    )
    return picture and after != "" and unicodedata.category(after) == "So"


def _has_forms(before: str, after: str) -> bool:
    """True where a form selector has an effect; after other characters it would hide."""
    if before.isascii():
        return before in _ON_KEYS and after == _KEYCAP
    return unicodedata.category(before) in _SIGNS or before in _SIGNS_TOO


def _is_typographic(text: str, at: int) -> bool:
    """True for a single space of typography: between words, in numbers, before or after signs.

    A space beside a part of a path, an option, or inside `code` is none.
    """
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if at == 0 or not after or before.isspace() or after.isspace():
        return False
    if '"' in (before, after) or not (before + after).isprintable():
        return False
    if text.count("`", max(0, at - MAX_CHARACTERS), at) % 2:
        return False
    if after in _SPACED_SIGNS:
        return True
    # The words at its sides; the longest that is looked at has 64 characters.
    own = re.split(r"\s", text[max(0, at - 64) : at])[-1]
    other = re.split(r"\s", text[at + 1 : at + 65], maxsplit=1)[0]
    return not any(_SIGNS_OF_CODE.search(_MARKUP_TAG.sub("", word)) for word in (own, other))


def _unusual(run: str, before: str, text: str = "", start: int = 0) -> Iterator[TextPiece]:
    """Split a run of unusual characters into visible text and tokens.

    `text` is the prose in which the run starts at `start`, or nothing.
    """
    plain: list[str] = []
    marks = 0
    for at, character in enumerate(run):
        category = unicodedata.category(character)
        if category in _MARKS and ord(character) not in _IGNORABLE:
            marks += 1
            hides = marks > _STACK or not before or before in " \n\t"
        else:
            marks = 0
            hides = category in _HIDDEN_CATEGORIES or ord(character) in _IGNORABLE
            if character in _PRESENTATION and before:
                hides = not _has_forms(before, run[at + 1 : at + 2])
            elif character == _JOINER and before:
                hides = not _joins(before, run[at + 1 : at + 2])
            elif text and character in TYPOGRAPHIC_SPACES:
                hides = not _is_typographic(text, start + at)
        if hides:
            if plain:
                yield TextPiece("".join(plain), "", "", False)
                plain = []
            shown = "[ESC]" if character == "\x1b" else f"[U+{ord(character):04X}]"
            name = _NAMES[character] if character in _NAMES else unicodedata.name(character, "")
            yield TextPiece(character, shown, name, True)
            before = "" if category not in _MARKS else before
        else:
            plain.append(character)
            before = character
    if plain:
        yield TextPiece("".join(plain), "", "", False)
