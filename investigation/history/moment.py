"""Parse "as of": a time, an age or a position becomes a cut through the journal, valid forever."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from journal.models import Entry
from ledger.models import Effect
from proofs.stable_position import is_stable
from sessions.models import Session

CUT_FORMS: Final = (
    "a time in UTC (2026-11-20T09:00Z), an age (2h, 30m, 3d) or a journal position (#48211)"
)
MAX_CUT_CHARACTERS: Final = 80  # characters
_AGE: Final = re.compile(r"([0-9]{1,6}) ?(s|m|min|h|d|w)", re.IGNORECASE)
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POSITION: Final = re.compile(r"#?([0-9]{1,19})(?:@(.+))?")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
# An entry received before a moment may have a slightly higher position, because its request waited
# for a lock. So many positions are checked.
_OVERTAKEN: Final = 1000
_NEAREST, _NEAR = 100, 10_000  # Entries that are searched for the project's last one.


# Why the past of a list and of a page is not rebuilt.
TOO_LONG_AGO: Final = (
    "Too much has changed since then to search as of that moment. Choose a later one. "
    "Pages of single effects, gates and sessions are available as of any moment."
)
TOO_MANY_EVENTS: Final = "Too many events to rebuild this page. See the journal."


class CutError(ValueError):
    """The moment cannot be shown. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class JournalCut:
    """A point in the journal: entries up to `position` count; `at_us` is the server's time then."""

    position: int
    at_us: int

    @property
    def when(self) -> datetime:
        """Return the time, in UTC."""
        return _EPOCH + self.at_us * _US

    @property
    def text(self) -> str:
        """Return text that always parses to this cut: position@time."""
        return f"{self.position}@{_format_iso(self.at_us)}"


def parse_cut(text: str, project: UUID, now_us: int) -> JournalCut:
    """Return the cut that `text` means in a project at `now_us`. Raises CutError.

    A time means everything that the server had received by then. Entries that are still being
    written cannot be cut: on PostgreSQL, a position counts once it is stable.
    """
    moment_text = text.strip()
    if not moment_text or len(moment_text) > MAX_CUT_CHARACTERS or not moment_text.isprintable():
        raise CutError(f"The moment is not valid. Use {CUT_FORMS}.")
    pinned = _POSITION.fullmatch(moment_text)
    if pinned is not None:
        return _cut_at_position(int(pinned[1]), pinned[2], project, now_us)
    at_us = _parse_moment(moment_text, now_us)
    if at_us > now_us:
        raise CutError(f"{_format_iso(at_us)} is in the future. Choose a moment in the past.")
    position = _find_position_at(at_us)
    if not is_stable(position):
        raise CutError(_SETTLING)
    return JournalCut(position, at_us)


_SETTLING: Final = "Entries are still being written at this moment. Try again in one second."


def _cut_at_position(position: int, moment: str | None, project: UUID, now_us: int) -> JournalCut:
    newest = Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0
    if position > newest:
        raise CutError(f"Position {position} does not exist yet. The newest is {newest}.")
    if not is_stable(position):
        raise CutError(_SETTLING)
    if moment is None:
        return JournalCut(position, _find_received_us(position, project))
    if _AGE.fullmatch(moment):
        raise CutError("A position cannot be combined with an age. Use a time in UTC.")
    stated_us = _parse_moment(moment, now_us)
    if stated_us > now_us:
        raise CutError(f"{_format_iso(stated_us)} is in the future. Choose a moment in the past.")
    return JournalCut(position, stated_us)


def _find_received_us(position: int, project: UUID) -> int:
    """Return when the project's last entry up to `position` was received.

    Times of other projects' entries are not disclosed.
    """
    newest = (
        Entry.objects.filter(position__lte=position)
        .order_by("-position")
        .values_list("project", "received_us")
    )
    for most in (_NEAREST, _NEAR):
        own_us = next(
            (at_us for entry_project, at_us in newest[:most] if entry_project == project), None
        )
        if own_us is not None:
            return own_us
    opened = {"project": project, "opened_position__lte": position}
    effect = (
        Effect.objects.filter(**opened)
        .order_by("-opened_position")
        .values_list("received_us", flat=True)
    )
    session = (
        Session.objects.filter(**opened)
        .order_by("-opened_position")
        .values_list("created_at_us", flat=True)
    )
    return max(effect.first() or 0, session.first() or 0)


def _parse_moment(text: str, now_us: int) -> int:
    """Return the microseconds of a time or an age."""
    age = _AGE.fullmatch(text)
    if age is not None:
        return max(0, now_us - int(age[1]) * _SECONDS[age[2].lower()] * 1_000_000)
    if _TIME.fullmatch(text):
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            raise CutError(f"{text} is not a valid time. Use {CUT_FORMS}.") from None
        return max(0, (parsed.replace(tzinfo=parsed.tzinfo or UTC) - _EPOCH) // _US)
    raise CutError(f"“{text[:40]}” is not a moment. Use {CUT_FORMS}.")


def _find_position_at(at_us: int) -> int:
    """Return the last position that the server had received by `at_us`, or 0."""
    received = Entry.objects.filter(received_us__lte=at_us)
    last = (
        received.order_by("-received_us", "-position").values_list("position", flat=True).first()
        or 0
    )
    near = received.filter(position__gt=last, position__lte=last + _OVERTAKEN)
    return near.order_by("-position").values_list("position", flat=True).first() or last


def _format_iso(us: int) -> str:
    at = (_EPOCH + us * _US).isoformat(timespec="microseconds" if us % 1_000_000 else "seconds")
    return at.replace("+00:00", "Z")
