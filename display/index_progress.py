"""Progress of the background indexes, and the note about it in answers."""

from dataclasses import dataclass
from typing import Final

from web.templatetags.gatebook import elapsed

WORDS: Final = "words"
REPEATS: Final = "repeats"
FIELDS: Final = "fields"
STUCK: Final = "stuck"
MAX_MISSING_COUNT: Final = 10_000  # Missing entries are counted up to this number.
_INDEXED: Final = {
    WORDS: "Words are indexed",
    REPEATS: "Repeated calls are indexed",
    FIELDS: "Declared fields are indexed",
}


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """An index has processed the journal up to entry `position` of `last`.

    `missing` entries of the project, at most MAX_MISSING_COUNT, were neither indexed nor searched
    directly. `silent_us` is how long an index that also depends on time has not run: 0 if it runs,
    -1 if it never ran.
    """

    index: str
    position: int
    last: int
    missing: int = 0
    silent_us: int = 0

    @property
    def complete(self) -> bool:
        """Return True if the index misses nothing."""
        return not self.missing and not self.silent_us

    @property
    def note(self) -> str:
        """Return a note for readers of the answer, or "" if the index is complete."""
        if self.silent_us < 0:
            return "The check for stuck sessions has not run yet. No stuck sessions are found."
        if self.silent_us:
            ago = elapsed(self.silent_us)
            return (
                f"The check for stuck sessions last ran {ago} ago."
                " Sessions stuck since then are missing."
            )
        if not self.missing:
            return ""
        number = f"{self.missing:,}{'+' if self.missing >= MAX_MISSING_COUNT else ''}"
        verb = "entry is" if self.missing == 1 else "entries are"
        upto = f"up to entry {self.position:,} of {self.last:,}"
        return f"{_INDEXED[self.index]} {upto}; {number} newer {verb} missing."

    @property
    def as_json(self) -> dict[str, str | int | bool]:
        """Return the progress as in the API and in export bundles."""
        return {
            "index": self.index,
            "read_to": self.position,
            "of": self.last,
            "missing": self.missing,
            "complete": self.complete,
        }
