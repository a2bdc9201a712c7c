"""The requests that a person selected to decide together, kept in their sign-in."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from accounts.access import MemberRequest
from approvals.inbox.inbox_rows import InboxRow
from approvals.review.form_token import VOTE_FORM

_SESSION_KEY: Final = "batch"
_KEPT_S: Final = 12 * 3600  # the length of a sign-in


@dataclass(frozen=True, slots=True)
class Selection:
    """The requests of the batch page, the ticked ones among them, and the typed reason."""

    ids: tuple[str, ...] = ()
    ticked: tuple[str, ...] = ()
    reason: str = ""


def load_selection(request: MemberRequest) -> Selection:
    """Return what is kept; empty if nothing is, or if it is older than 12 hours."""
    kept = request.session.get(_SESSION_KEY)
    if not isinstance(kept, dict) or time.time() - kept.get("at_s", 0) > _KEPT_S:
        return Selection()
    return Selection(tuple(kept["ids"]), tuple(kept["ticked"]), kept["reason"])


def store_selection(
    request: MemberRequest, ids: Sequence[str], ticked: Iterable[str], reason: str
) -> None:
    """Keep the requests, the ticks among them and the reason."""
    chosen = set(ticked)
    selection = Selection(
        tuple(ids),
        tuple(identity for identity in ids if identity in chosen),
        reason[: VOTE_FORM.max_characters],
    )
    request.session[_SESSION_KEY] = {**asdict(selection), "at_s": int(time.time())}


def discard_selection(request: MemberRequest) -> None:
    """Forget the selection after its votes."""
    request.session.pop(_SESSION_KEY, None)


def mark_ticked_rows(request: MemberRequest, rows: Iterable[InboxRow]) -> int:
    """Tick the rows of the inbox that are kept as selected; return how many."""
    ticked = set(load_selection(request).ticked)
    count = 0
    for row in rows if ticked else ():
        for entry in (row, *row.like):
            entry.ticked = entry.groups and str(entry.gate.id) in ticked
            count += entry.ticked
    return count
