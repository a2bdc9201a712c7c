"""The one writer of Pulse: our own chores say when they last ran, and every page says so if that is long ago."""

from typing import Final

from django.db import connection, transaction
from django.db.models import TextField
from django.db.models.expressions import RawSQL

from inquiry.models import Pulse
from inquiry.stuck.following import HOLD_S, US, outage
from journal import beating, sql
from journal.beating import Lateness, lateness
from journal.clock import now_us

_ALL: Final = (
    "SELECT {gather}(name || ':' || beat_us || ':' || every_us || ':' || held_until_us, ' ') FROM inquiry_pulse"
)


@transaction.atomic
def beat(name: str, at_us: int | None = None, *, usual_s: int = 0) -> Pulse:
    """Say that the chore runs now, and return its pulse. After an outage of our own alarms are held for HOLD_S.

    `usual_s` is its interval, for the time until a second beat shows it.
    """
    now = now_us() if at_us is None else at_us
    row = Pulse.objects.select_for_update().filter(name=name).first()
    if row is None:
        row, _ = Pulse.objects.get_or_create(name=name, defaults={"beat_us": now, "every_us": usual_s * US})
        return row
    if outage(row.beat_us, row.every_us, now):
        row.held_until_us = now + HOLD_S * US
    row.every_us, row.beat_us = max(now - row.beat_us, 0), max(now, row.beat_us)
    row.beats += 1
    row.save()
    return row


def heard(name: str) -> None:
    """As `beat`, for chores that stand in rooms below."""
    beat(name)


def read_to(name: str, position: int) -> None:
    """Keep how far a chore has read the journal."""
    sql.write("UPDATE inquiry_pulse SET position = %s WHERE name = %s AND position < %s", [position, name, position])


def position(name: str) -> int:
    """How far a chore has read the journal; 0 for one that never did."""
    found = sql.rows("SELECT position FROM inquiry_pulse WHERE name = %s", [name])
    return int(found[0][0]) if found else 0


def start_over(name: str) -> None:
    """Let a chore read the journal from its beginning."""
    Pulse.objects.filter(name=name).update(position=0)


def is_away(name: str, now: int) -> bool:
    """True when a chore ran before, and has been silent for longer than the grace and its usual interval allow."""
    row = Pulse.objects.filter(name=name).first()
    return row is not None and outage(row.beat_us, row.every_us, now)


def held_until() -> int:
    """Until when alarms are held after an outage of our own; a moment that has passed where they are not."""
    return beating.held_until(sql.rows(_text())[0][0] or "")


def in_words(*_project: object) -> RawSQL:
    """All pulses as one text, to be read beside a project's row (journal/beating.py reads it)."""
    return RawSQL(f"({_text()})", (), output_field=TextField())  # noqa: S611 - no value of anybody's


def all_of_them() -> list[Lateness]:
    """How each chore stands now. One query."""
    return lateness(sql.rows(_text())[0][0] or "", now_us())


def _text() -> str:
    return _ALL.format(gather="string_agg" if connection.vendor == "postgresql" else "group_concat")
