"""Scan the characters of a query: blanks, words, signs and quoted text."""

import re
from typing import Final

from investigation.query.parser.ast import QueryError

MAX_CHARACTERS: Final = 2_000
# A name with this prefix is a search field that tool declarations name; no other name has a dot.
DECLARED_PREFIX: Final = "field."
NAME: Final = re.compile(r"field\.[a-z][a-z0-9_]*|[A-Za-z_][A-Za-z0-9_]*")
_SPACE: Final = re.compile(r"\s*")


class Scanner:
    """A text and the position `at` up to which it was read.

    Raises QueryError if the text is too long or contains a NUL character.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise QueryError(
                MAX_CHARACTERS, 1, f"A query can have at most {MAX_CHARACTERS:,} characters."
            )
        if "\0" in text:
            raise QueryError(text.index("\0"), 1, "A query cannot hold a NUL character.")
        self.text, self.at = text, 0

    def quoted(self) -> str:
        """Read a text between double quotes. Inside, `\\"` is a quote and `\\\\` a backslash."""
        opened = self.at
        characters: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            character = self.text[self.at]
            self.at += 1
            if character == '"':
                return "".join(characters)
            if character == "\\" and self.text[self.at : self.at + 1] in ('"', "\\"):
                character = self.text[self.at]
                self.at += 1
            characters.append(character)
        raise QueryError(opened, 1, "The quote is not closed. Add a closing quote.")

    def space(self) -> None:
        """Skip blanks."""
        blanks = _SPACE.match(self.text, self.at)
        self.at = blanks.end() if blanks else self.at

    def peek(self, character: str) -> bool:
        """Return True if `character` is next. Reads nothing."""
        return self.text.startswith(character, self.at)

    def take(self, character: str) -> bool:
        """Read `character` if it is next, and return whether it was."""
        taken = self.peek(character)
        self.at += taken
        return taken

    def sees(self, word: str) -> bool:
        """Return True if `word` is next and ends there. Reads nothing."""
        after = self.text[self.at + len(word) : self.at + len(word) + 1]
        return self.text.startswith(word, self.at) and (
            not after or after.isspace() or after in "()"
        )

    def keyword(self, word: str) -> bool:
        """Read blanks and then `word`, or nothing if another word follows."""
        start = self.at
        self.space()
        if self.sees(word):
            self.at += len(word)
            return True
        self.at = start
        return False

    def closes(self, opened: int) -> None:
        """Read blanks and the parenthesis that closes `opened`. Raises QueryError."""
        self.space()
        if not self.take(")"):
            raise QueryError(opened, 1, "The parenthesis is not closed. Add a closing parenthesis.")
