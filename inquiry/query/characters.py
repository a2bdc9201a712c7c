"""The text of a query as a row of characters, and where its reader stands in it: blanks, words, signs, quotes."""

import re
from typing import Final

from inquiry.query.tree import Fault

MOST_CHARACTERS: Final = 2_000
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE: Final = re.compile(r"\s*")


class Characters:
    """A text and the place `at` up to which it is read. Raises Fault where it is too long or holds what none may."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise Fault(MOST_CHARACTERS, 1, f"A query has at most {MOST_CHARACTERS:,} characters.")
        if "\0" in text:
            raise Fault(text.index("\0"), 1, "A query cannot hold a NUL character.")
        self.text, self.at = text, 0

    def quoted(self) -> str:
        """A text between double quotes; inside, `\\"` is a quote and `\\\\` a backslash."""
        opened = self.at
        found: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            character = self.text[self.at]
            self.at += 1
            if character == '"':
                return "".join(found)
            if character == "\\" and self.text[self.at : self.at + 1] in ('"', "\\"):
                character = self.text[self.at]
                self.at += 1
            found.append(character)
        raise Fault(opened, 1, "This quote is not closed.")

    def space(self) -> None:
        """Pass over blanks."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def peek(self, character: str) -> bool:
        """Whether `character` is the next; nothing is read."""
        return self.text.startswith(character, self.at)

    def take(self, character: str) -> bool:
        """Read `character` if it is the next, and say whether it was."""
        taken = self.peek(character)
        self.at += taken
        return taken

    def sees(self, word: str) -> bool:
        """Whether `word` is the next and ends there; nothing is read."""
        after = self.text[self.at + len(word) : self.at + len(word) + 1]
        return self.text.startswith(word, self.at) and (not after or after.isspace() or after in "()")

    def keyword(self, word: str) -> bool:
        """Read blanks and then `word`; nothing at all where another follows."""
        begun = self.at
        self.space()
        if self.sees(word):
            self.at += len(word)
            return True
        self.at = begun
        return False

    def closes(self, opened: int) -> None:
        """Read blanks and the end of the parenthesis that stands at `opened`. Raises Fault where none follows."""
        self.space()
        if not self.take(")"):
            raise Fault(opened, 1, "This parenthesis is not closed.")
