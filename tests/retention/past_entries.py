"""Journal entries of past months, and a retention set that lets some of them expire."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from db.clock import now_us
from journal import entries
from retention import retention_dry_run, retention_sets
from retention.models import RetentionSet
from tests.ledger.rows_by_hand import World

RULES: Final = """
name: test
classes:
  - {name: short, keep: 60 days}
  - {name: long, keep: 13 months}
rules:
  - {class: forever, kind: effect.planned, tool: pay*}
  - {class: short, kind: effect.*}
  - {class: long, kind: note.*}
"""
DAY_US: Final = 86_400 * 1_000_000


def days_ago(days: int) -> int:
    """Return a moment in microseconds."""
    return now_us() - days * DAY_US


def append_texts(
    world: World, kind: str, texts: Sequence[str | dict[str, Any]], days: int, **columns: Any
) -> list[int]:
    """Append entries that were received some days ago; return their positions.

    A text is an argument of the body, or the whole body.
    """
    earlier = entries.keyed_digest(kind, str(days), *map(str, texts))[:20]
    drafts = [
        entries.Draft(
            world.project.id,
            "deploy-7",
            f"{earlier}-{number}",
            kind,
            "evidence",
            "agent:1",
            entries.dump_sorted_json(
                {"arguments": {"text": text}} if isinstance(text, str) else text
            ),
            session=world.session.id,
            **columns,
        )
        for number, text in enumerate(texts)
    ]
    return [row.position for row in entries.append_entries(drafts, days_ago(days))]


def load_counted(world: World, text: str = RULES) -> RetentionSet:
    """Load a set and count what it would remove."""
    row = retention_sets.load_retention_set(world.project, text)
    retention_dry_run.count_retention(row)
    return row


def activate(world: World, text: str = RULES) -> RetentionSet:
    """Load a set, count it, and put it in force."""
    row = load_counted(world, text)
    return retention_sets.activate_retention_set(row.pk, world.project, row.counted_at_us)


def this_month() -> str:
    """Return the present month as counts name it."""
    return datetime.now(UTC).strftime("%Y-%m")
