"""The one writer of UsedName, UsedNamePlan and UsedNameProgress: names that plans used.

A name is readable while one of its first MAX_LINKED_PLANS plans is: erasing a body unlinks it, and
a name without a link goes in the same transaction. Uses beyond those links keep nothing alive.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from django.db import connection

from db import raw_sql
from db.triggers import TriggerSet
from ledger.models import UsedName, UsedNamePlan, UsedNameProgress

MAX_LINKED_PLANS: Final = 8
# PostgreSQL's advisory locks are numbers; this number spells "names".
_LOCK: Final = 474_147_743_091

_UPSERT: Final = (
    "INSERT INTO ledger_usedname (project_id, kind, name, skeleton, head, middle, tail,"
    " first_position, last_position, first_us, last_us, uses)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    " ON CONFLICT (project_id, kind, name) DO UPDATE SET"
    " last_position = excluded.last_position, last_us = excluded.last_us,"
    " uses = ledger_usedname.uses + excluded.uses"
)
_LINK: Final = (
    "INSERT INTO ledger_usednameplan (name_id, position)"
    " SELECT name.id, %s FROM ledger_usedname name"
    " WHERE name.project_id = %s AND name.kind = %s AND name.name = %s"
    " AND (SELECT count(*) FROM ledger_usednameplan plan WHERE plan.name_id = name.id)"
    f" < {MAX_LINKED_PLANS} ON CONFLICT DO NOTHING"
)


@dataclass(slots=True)
class NameUses:
    """The uses of one name in a part of the journal. `project` is its id as text."""

    project: str
    kind: str
    name: str
    skeleton: str
    pieces: tuple[str, str, str]
    positions: list[int] = field(default_factory=list)  # ascending
    first_us: int = 0
    last_us: int = 0


def lock_names() -> None:
    """Lock, until the transaction ends, the writing of names and the erasure of bodies.

    SQLite has only one writer.
    """
    if connection.vendor == "postgresql":
        raw_sql.fetch_rows("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def load_names_position() -> int:
    """Return the journal position up to which the names of plans were read; 0 for none."""
    rows = raw_sql.fetch_rows("SELECT position FROM ledger_usednameprogress")
    return int(rows[0][0]) if rows else 0


def store_name_uses(uses: Iterable[NameUses]) -> int:
    """Add uses to the stored names; return the number of names. Needs `lock_names`."""
    ordered = sorted(uses, key=lambda name: (name.project, name.kind, name.name))
    rows = [
        (
            *(name.project, name.kind, name.name, name.skeleton, *name.pieces),
            *(name.positions[0], name.positions[-1], name.first_us, name.last_us),
            len(name.positions),
        )
        for name in ordered
    ]
    links = [
        (position, name.project, name.kind, name.name)
        for name in ordered
        for position in name.positions[:MAX_LINKED_PLANS]
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT, rows)
            cursor.executemany(_LINK, links)
    return len(rows)


def store_names_position(position: int) -> None:
    """Store the journal position up to which names were read, with the names themselves."""
    UsedNameProgress.objects.update_or_create(id=1, defaults={"position": position})


def delete_all_names() -> None:
    """Delete all names, so that the job reads the journal from its beginning again."""
    UsedNamePlan.objects.all().delete()
    UsedName.objects.all().delete()
    store_names_position(0)


def find_erased_plans(positions: Sequence[int]) -> set[int]:
    """Return which of these entries have been erased. One query."""
    text = (
        "SELECT erasure.entry_id FROM {} CROSS JOIN journal_erasure erasure"
        " WHERE erasure.entry_id = wanted.key"
    )
    return {
        entry
        for (entry,) in raw_sql.fetch_rows(
            text.format(raw_sql.wanted_table("bigint")), [raw_sql.to_array_parameter(positions)]
        )
    }


# Deleting a body, in any way, deletes the names that only erased plans used, in its transaction.
USED_NAME_TRIGGERS: Final = TriggerSet(
    postgresql={
        "erased_plan_deletes_its_names": (
            "journal_body",
            "AFTER DELETE ON journal_body FOR EACH ROW EXECUTE FUNCTION ledger_delete_names()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION ledger_delete_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock({_LOCK});
  WITH unlinked AS (DELETE FROM {{schema}}.ledger_usednameplan
    WHERE position = OLD.entry_id RETURNING name_id)
  DELETE FROM {{schema}}.ledger_usedname name USING unlinked WHERE name.id = unlinked.name_id
    AND NOT EXISTS (SELECT 1 FROM {{schema}}.ledger_usednameplan plan
      WHERE plan.name_id = name.id AND plan.position <> OLD.entry_id);
  RETURN NULL;
END $$;
""",
    sqlite={
        "erased_plan_deletes_its_names": (
            "journal_body",
            """AFTER DELETE ON journal_body BEGIN
            DELETE FROM ledger_usedname WHERE id IN (
            SELECT name_id FROM ledger_usednameplan WHERE position = OLD.entry_id)
            AND NOT EXISTS (SELECT 1 FROM ledger_usednameplan other
            WHERE other.name_id = ledger_usedname.id AND other.position <> OLD.entry_id);
            DELETE FROM ledger_usednameplan WHERE position = OLD.entry_id; END""",
        ),
    },
    needs=("ledger_usedname", "ledger_usednameplan"),
)
