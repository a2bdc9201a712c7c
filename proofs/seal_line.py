"""The quiet line of pages: under which tree head an entry is sealed, and since when outside."""

from typing import Final, NamedTuple
from uuid import UUID

from db import raw_sql
from proofs.seal_lag import LATE_US

RECENT: Final = 100
# The newest entry of what a page shows: entries are sealed in the order of their positions. That
# somebody read the page is an entry too, the newest one, and says nothing about what it shows.
_NEWEST_OF: Final = (
    "SELECT position FROM (SELECT position, kind FROM journal_entry WHERE {column} = %s"
    f" ORDER BY position DESC LIMIT {RECENT}) AS recent"
    " ORDER BY CASE WHEN substr(kind, 1, 7) = 'access.' THEN 1 ELSE 0 END, position DESC LIMIT 1"
)
_NEWEST: Final = {
    "entry": "SELECT position FROM journal_entry WHERE position = %s",
    "effect": _NEWEST_OF.replace("{column}", "effect"),
    "session": _NEWEST_OF.replace("{column}", "session"),
    # Positions are shared: the newest entry up to one, of any project.
    "until": (
        "SELECT position FROM journal_entry WHERE position <= %s ORDER BY position DESC LIMIT 1"
    ),
}
_STATE: Final = """
SELECT headed.position, headed.received_us, headed.log_index, headed.head,
  (SELECT min(anchored_at_us) FROM proofs_anchor
    WHERE error = '' AND tree_head_id = headed.anchored_head),
  headed.anchored_head
FROM (SELECT sealed.position, sealed.received_us, sealed.log_index, sealed.head,
    (SELECT tree_head_id FROM proofs_anchor WHERE error = '' AND tree_head_id >= sealed.head
      ORDER BY tree_head_id LIMIT 1) AS anchored_head
  FROM (SELECT entry.position, entry.received_us, leaf.log_index,
      (SELECT id FROM proofs_treehead WHERE size > leaf.log_index ORDER BY size, id LIMIT 1) AS head
    FROM journal_entry entry LEFT JOIN proofs_sealedentry leaf ON leaf.entry_id = entry.position
    WHERE entry.position = ({newest})) AS sealed) AS headed
"""


class SealLine(NamedTuple):
    """How far the newest entry of a page is sealed; None where it is not yet."""

    position: int
    received_us: int
    log_index: int | None
    head: int | None  # the first tree head over it
    anchored_at_us: int | None
    anchored_head: int | None  # the first head over it that an anchor took

    def is_late(self, now: int) -> bool:
        """Whether the sealer should have reached the entry long ago."""
        return self.log_index is None and now - self.received_us > LATE_US


def load_seal_line(subject: str, key: UUID | int) -> SealLine | None:
    """Return the line of an `effect` or `session`, an `entry`, or all `until` a position.

    None where the journal has no such entry. One query, of index probes.
    """
    value = raw_sql.vendor_id(key) if isinstance(key, UUID) else key
    rows = raw_sql.fetch_rows(_STATE.format(newest=_NEWEST[subject]), [value])
    return SealLine(*rows[0]) if rows else None
