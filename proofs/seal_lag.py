"""How far the seal is behind the journal."""

from typing import Final, NamedTuple

from db import raw_sql
from db.clock import now_us
from proofs.tree_store import load_tree_end

# The seal is at most a second behind. An operator should check it when it is this late.
LATE_US: Final = 10_000_000
_OLDEST: Final = (
    "SELECT received_us FROM journal_entry WHERE position > %s ORDER BY position LIMIT 1"
)


class SealLag(NamedTuple):
    """The age of the oldest entry that is not sealed (0 if all are), and the size of the tree."""

    age_us: int
    size: int

    @property
    def is_late(self) -> bool:
        """Whether an operator should check it."""
        return self.age_us > LATE_US


def load_seal_lag() -> SealLag:
    """Return the lag of the seal. Two index probes."""
    end = load_tree_end()
    rows = raw_sql.fetch_rows(_OLDEST, [end.position])
    return SealLag(max(now_us() - rows[0][0], 0) if rows else 0, end.size)
