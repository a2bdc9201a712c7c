"""Progress of the indexes that follow the journal in the background: what an answer that goes by one says of it."""

from dataclasses import dataclass
from typing import Final

from journal.templatetags.gatebook import elapsed

WORDS: Final = "words"
REPEATS: Final = "repeats"
STUCK: Final = "stuck"
COUNTED: Final = 10_000  # missing entries are counted up to here
_INDEXED: Final = {WORDS: "Words are indexed", REPEATS: "Repeated calls are indexed"}


@dataclass(frozen=True, slots=True)
class Progress:
    """An index has read the journal up to the entry `position` of `last`.

    `missing` entries of the project were neither read nor searched directly, at most COUNTED. `silent_us` is how long
    an index that also goes by time has not run: 0 where it runs, -1 where it never did.
    """

    index: str
    position: int
    last: int
    missing: int = 0
    silent_us: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing can be missing from what goes by this index."""
        return not self.missing and not self.silent_us

    @property
    def note(self) -> str:
        """A sentence for readers of the answer, "" when it is complete."""
        if self.silent_us < 0:
            return "The check for stuck sessions has not run yet; nothing that is stuck is found."
        if self.silent_us:
            ago = elapsed(self.silent_us)
            return f"The check for stuck sessions last ran {ago} ago; sessions that are stuck since are missing."
        if not self.missing:
            return ""
        number = f"{self.missing:,}{'+' if self.missing >= COUNTED else ''}"
        verb = "entry is" if self.missing == 1 else "entries are"
        upto = f"up to entry {self.position:,} of {self.last:,}"
        return f"{_INDEXED[self.index]} {upto}; {number} newer {verb} missing."

    @property
    def as_json(self) -> dict[str, str | int | bool]:
        """As the API and export bundles have it."""
        return {
            "index": self.index,
            "read_to": self.position,
            "of": self.last,
            "missing": self.missing,
            "complete": self.complete,
        }
