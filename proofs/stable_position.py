"""The stable position of the journal: no entry will ever appear up to it.

Whatever leaves the process (a link, a file, the next page of a client) names only such positions.
SQLite has one writer, so its last position is stable. On PostgreSQL the last visible one is stable
where no other transaction writes to the journal, or once these have ended
(journal/running_writers.py). While a slow one writes, the last sealed position is stable.
"""

import time
from typing import Final
from uuid import UUID

from django.db import connection
from django.db.models import BigIntegerField
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Coalesce

from db import raw_sql
from db.clock import now_us
from journal.running_writers import LAST_POSITION, RUNNING_WRITERS, load_running_writers

# Most transactions that write to the journal end within this time.
PATIENCE_S: Final = 0.08
_FIRST_POLL_S: Final = 0.002  # doubled each time
# A link or file that names an older position would not show what its reader has just seen.
RECENT_US: Final = 15_000_000
_SEALED: Final = "SELECT entry_id FROM proofs_sealedentry ORDER BY log_index DESC LIMIT 1"
# The snapshot of a statement is older than what it reads of locks. So what it does not see of the
# journal up to `last` is committed when it ends, or held by one of these writers.
_STATE: Final = (
    f"SELECT ({LAST_POSITION}), ({_SEALED}), ARRAY(SELECT virtualtransaction FROM"
    f" ({RUNNING_WRITERS}) AS running)"
)
_COLUMN: Final = {
    "postgresql": (
        f"SELECT CASE WHEN EXISTS ({RUNNING_WRITERS}) THEN ({_SEALED}) ELSE ({LAST_POSITION}) END"
    ),
    "sqlite": LAST_POSITION,
}


class UnstableError(RuntimeError):
    """No recent position is stable. The text says what to do."""


def load_stable_position(patience_s: float = 0.0) -> int:
    """Return a stable position, 0 if there is none.

    The last visible one if the transactions that write now end within `patience_s`, else the last
    sealed one. One query; more only while others write. What is read later includes every entry
    up to it.
    """
    last, sealed = _load_positions(patience_s)
    return sealed if last is None else last


def load_recent_position(patience_s: float = PATIENCE_S) -> int:
    """Return a stable position that is a few seconds old at most.

    For what stays: links, files. Raises UnstableError where a slow transaction writes and nothing
    seals.
    """
    last, sealed = _load_positions(patience_s)
    if last is not None:
        return last
    rows = raw_sql.fetch_rows(
        "SELECT received_us FROM journal_entry WHERE position > %s ORDER BY position LIMIT 1",
        [sealed],
    )
    if rows and now_us() - rows[0][0] > RECENT_US:
        raise UnstableError("Entries are still being written. Try again in a few seconds.")
    return sealed


def is_stable(position: int, patience_s: float = PATIENCE_S) -> bool:
    """Return whether no entry will ever appear up to a `position`."""
    last, sealed = _load_positions(patience_s, enough=position)
    return position <= max(last or 0, sealed)


def stable_position_column(_project: UUID, _now: int) -> Combinable:
    """Return a stable position as a column, without a wait. What is read later includes it."""
    query = _COLUMN[connection.vendor]
    return Coalesce(RawSQL(query, [], output_field=BigIntegerField()), 0)  # noqa: S611  # a constant


def _load_positions(patience_s: float, enough: int | None = None) -> tuple[int | None, int]:
    """Return the last visible position, None unless it is stable, and the last sealed one.

    Does not wait where the sealed one is `enough`.
    """
    if connection.vendor != "postgresql":
        rows = raw_sql.fetch_rows(LAST_POSITION)
        return (int(rows[0][0]) if rows else 0), 0
    last, sealed, names = raw_sql.fetch_rows(_STATE)[0]
    writers, poll_s = frozenset(names), _FIRST_POLL_S
    ends_s = time.monotonic() + patience_s
    while writers:
        left_s = ends_s - time.monotonic()
        if left_s <= 0 or (enough is not None and enough <= (sealed or 0)):
            return None, sealed or 0
        time.sleep(min(poll_s, left_s))
        poll_s *= 2
        writers &= load_running_writers()
    return last or 0, sealed or 0
