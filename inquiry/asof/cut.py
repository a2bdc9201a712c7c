"""Reading "as of": a time, an age or a position becomes one cut through the journal, which means the same for ever."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from journal import horizon
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session

FORMS: Final = "a time in UTC (2026-11-20T09:00Z), an age (2h, 30m, 3d), or a position of the journal (#48211)"
LONGEST: Final = 80  # characters
_AGE: Final = re.compile(r"([0-9]{1,6}) ?(s|m|min|h|d|w)", re.IGNORECASE)
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POSITION: Final = re.compile(r"#?([0-9]{1,19})(?:@(.+))?")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
# What was received before a moment may stand a little further on: its request waited for a lock. So far one looks.
_OVERTAKEN: Final = 1000
_NEAREST, _NEAR = 100, 10_000  # entries among which one looks for the project's last fact


class UnfitError(ValueError):
    """There is no such moment to look at; the message is a sentence that says why, and what there is."""


@dataclass(frozen=True, slots=True)
class Cut:
    """All entries up to `position` count, and no other; `at_us` is what the server's clock said (microseconds)."""

    position: int
    at_us: int

    @property
    def when(self) -> datetime:
        """The time, in UTC."""
        return _EPOCH + self.at_us * _US

    @property
    def text(self) -> str:
        """What reads as this very cut, whenever it is read: position@time."""
        return f"{self.position}@{_iso(self.at_us)}"


def read(text: str, project: UUID, now_us: int) -> Cut:
    """The cut that `text` means in a project at `now_us`. Raises UnfitError.

    A time means everything that the server had received by then. What is still being written cannot be cut: on
    PostgreSQL a position counts once every transaction up to it has ended.
    """
    said = text.strip()
    if not said or len(said) > LONGEST or not said.isprintable():
        raise UnfitError(f"Name the moment as {FORMS}.")
    pinned = _POSITION.fullmatch(said)
    if pinned is not None:
        return _at_position(int(pinned[1]), pinned[2], project, now_us)
    at_us = _moment(said, now_us)
    if at_us > now_us:
        raise UnfitError(f"{_iso(at_us)} has not come yet; the book can be shown as of any moment before now.")
    position = _position_at(at_us)
    if position > horizon.last_position():
        raise UnfitError(_SETTLING)
    return Cut(position, at_us)


_SETTLING: Final = (
    "The book is still settling there: what is being written now may yet come before it. Ask again in a second."
)


def _at_position(position: int, moment: str | None, project: UUID, now_us: int) -> Cut:
    newest = Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0
    if position > newest:
        raise UnfitError(f"Position {position} is not there yet: the book has come to {newest}.")
    if position > horizon.last_position():
        raise UnfitError(_SETTLING)
    if moment is None:
        return Cut(position, _received_by(position, project))
    if _AGE.fullmatch(moment):
        raise UnfitError(
            "Beside a position stands a time in UTC and no age: with each day that would be another moment."
        )
    told_us = _moment(moment, now_us)
    if told_us > now_us:
        raise UnfitError(f"{_iso(told_us)} has not come yet; the book can be shown as of any moment before now.")
    return Cut(position, told_us)


def _received_by(position: int, project: UUID) -> int:
    """When the project's last fact up to `position` was received. When others' were is not told across the wall."""
    newest = Entry.objects.filter(position__lte=position).order_by("-position").values_list("project", "received_us")
    for most in (_NEAREST, _NEAR):
        mine = next((at_us for home, at_us in newest[:most] if home == project), None)
        if mine is not None:
            return mine
    opened = {"project": project, "opened_position__lte": position}
    effect = Effect.objects.filter(**opened).order_by("-opened_position").values_list("received_us", flat=True)
    session = Session.objects.filter(**opened).order_by("-opened_position").values_list("created_at_us", flat=True)
    return max(effect.first() or 0, session.first() or 0)


def _moment(text: str, now_us: int) -> int:
    """Microseconds of a time or an age."""
    age = _AGE.fullmatch(text)
    if age is not None:
        return max(0, now_us - int(age[1]) * _SECONDS[age[2].lower()] * 1_000_000)
    if _TIME.fullmatch(text):
        try:
            told = datetime.fromisoformat(text)
        except ValueError:
            raise UnfitError(f"There is no such time as {text}. Name the moment as {FORMS}.") from None
        return max(0, (told.replace(tzinfo=told.tzinfo or UTC) - _EPOCH) // _US)
    raise UnfitError(f"“{text[:40]}” is no moment. Name it as {FORMS}.")


def _position_at(at_us: int) -> int:
    """The last position that the server had received by `at_us`; 0 before the first."""
    received = Entry.objects.filter(received_us__lte=at_us)
    last = received.order_by("-received_us", "-position").values_list("position", flat=True).first() or 0
    near = received.filter(position__gt=last, position__lte=last + _OVERTAKEN)
    return near.order_by("-position").values_list("position", flat=True).first() or last


def _iso(us: int) -> str:
    at = (_EPOCH + us * _US).isoformat(timespec="microseconds" if us % 1_000_000 else "seconds")
    return at.replace("+00:00", "Z")
