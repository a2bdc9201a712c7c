"""What the page /proofs/ shows: how far the journal is sealed, heads, and the anchors of each."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from db import raw_sql
from db.clock import now_us
from proofs.anchors.anchors import AnchorState, load_anchor_states
from proofs.models import Anchor, TreeHead
from proofs.seal_lag import LATE_US

HEADS_PER_PAGE: Final = 20
MAX_COUNTED: Final = 10_000
HEAD_LATE_US: Final = 7_200_000_000  # a head is made every hour, also when nothing happens

# The range has two ends: above one position that it does not know PostgreSQL expects a third of all
# entries, and would read the whole journal for them.
_SEAL: Final = f"""
SELECT sealed.log_index, sealed.position, last.position,
  (SELECT received_us FROM journal_entry
    WHERE position > coalesce(sealed.position, 0) AND position <= last.position
    ORDER BY position LIMIT 1),
  (SELECT count(*) FROM (SELECT 1 FROM journal_entry
    WHERE position > coalesce(sealed.position, 0) AND position <= last.position
    LIMIT {MAX_COUNTED + 1}) AS waiting)
FROM (SELECT max(position) AS position FROM journal_entry) AS last
LEFT JOIN (SELECT log_index, entry_id AS position FROM proofs_sealedentry
  ORDER BY log_index DESC LIMIT 1) AS sealed ON 1 = 1
"""
_TAKEN_BY: Final = """
SELECT key, (SELECT id FROM proofs_anchor WHERE error = '' AND name = key AND tree_head_id >= %s
  ORDER BY tree_head_id LIMIT 1)
FROM {wanted}
"""


class SealOverview(NamedTuple):
    """How far the journal is sealed; positions are None in an empty journal."""

    size: int
    sealed_position: int | None
    last_position: int | None
    waiting: int  # entries, counted up to MAX_COUNTED
    waiting_us: int  # age of the oldest that waits

    @property
    def is_late(self) -> bool:
        """Whether the sealer should have reached them long ago."""
        return self.waiting_us > LATE_US

    @property
    def is_many(self) -> bool:
        """Whether more wait than were counted."""
        return self.waiting > MAX_COUNTED


@dataclass(frozen=True, slots=True)
class HeadRow:
    """A head in the history, the entries that it added, and the anchors that hold it."""

    head: TreeHead
    added: int | None
    anchors: list[str]


def load_seal_overview() -> SealOverview:
    """Return how far the journal is sealed. One query of index probes."""
    index, sealed, last, oldest_us, waiting = raw_sql.fetch_rows(_SEAL)[0]
    age_us = max(now_us() - oldest_us, 0) if oldest_us is not None else 0
    return SealOverview(0 if index is None else index + 1, sealed, last, waiting, age_us)


def load_head_rows(before: int | None) -> tuple[list[HeadRow], int | None]:
    """Return a page of heads, newest first, and `before` of the next page. Two queries."""
    heads = TreeHead.objects.order_by("-id")
    if before is not None:
        heads = heads.filter(id__lt=before)
    rows = list(heads[: HEADS_PER_PAGE + 1])
    shown = rows[:HEADS_PER_PAGE]
    names: dict[int, list[str]] = {}
    taken = Anchor.objects.filter(error="", tree_head_id__in=[head.id for head in shown])
    for number, name in taken.order_by("id").values_list("tree_head_id", "name")[:1000]:
        names.setdefault(number, []).append(name)
    history = []
    for head, older in zip(shown, [*rows[1:], None], strict=False):
        added = head.size - older.size if older is not None else None
        if head.id == 1:
            added = head.size
        history.append(HeadRow(head, added, names.get(head.id, [])))
    return history, shown[-1].id if len(rows) > HEADS_PER_PAGE else None


def load_anchors_of_head(number: int) -> list[tuple[AnchorState, Anchor | None]]:
    """Return each anchor with its first success at head `number` or later. Four queries."""
    states = load_anchor_states()
    if not states:
        return []
    names = raw_sql.to_array_parameter(state.target.name for state in states)
    text = _TAKEN_BY.format(wanted=raw_sql.wanted_table("text"))
    ids = dict(raw_sql.fetch_rows(text, [number, names]))
    rows = {row.id: row for row in Anchor.objects.filter(id__in=filter(None, ids.values()))}
    return [(state, rows.get(ids.get(state.target.name) or 0)) for state in states]


def describe_receipt(anchor: Anchor, *, with_place: bool) -> str:
    """Return a receipt as a sentence; `with_place` names paths and hosts of the operator."""
    receipt = orjson.loads(anchor.receipt)
    if anchor.kind == "file":
        place = f" of {receipt['path']}" if with_place else ""
        return f"at byte {receipt['offset']}{place}"
    if anchor.kind == "git":
        place = f" of {receipt['remote']}" if with_place else ""
        return f"commit {receipt['commit'][:12]} on {receipt['branch']}{place}"
    if anchor.kind == "syslog":
        place = f" to {receipt['sent_to']}" if with_place else ""
        return f"sent{place}; syslog confirms nothing"
    if anchor.kind == "webhook":
        place = f"{receipt['host']} " if with_place else ""
        return f"{place}answered {receipt['status']}"
    return f"cosigned by {receipt['witness']}"
