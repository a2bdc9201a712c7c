"""Attempts after the first, and the verdict that allows them."""

from dataclasses import dataclass, field
from typing import Any, Final

from ledger import cases, fold, leaves, verdicts
from ledger.cases import Judged
from ledger.leaves import Refusal
from ledger.rows import EffectRow


@dataclass(frozen=True, slots=True)
class Next:
    """How the next attempt may begin, or why it may not.

    `facts` are for its entry, `values` for the fold. `again`: it reuses a used permission.
    """

    refusal: Refusal | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    again: bool = False


FIRST: Final = Next()
NEEDS_LEAVE: Final = Refusal(
    "NO_LEAVE",
    "Another attempt needs its own permission. Plan the effect again, then dispatch it.",
    "already_used",
)
_COMPENSATION_OPEN: Final = Refusal(
    "COMPENSATION_OPEN",
    "A compensation of this effect is open. Do not act; settle the compensation first.",
)
_LEASE_HELD: Final = Refusal(
    "LEASE_HELD", "Another worker holds the lease. Do not act while it is live."
)


def following(row: EffectRow, process: str, replays: int | None, now_us: int) -> Next:
    """Decide the next attempt of a locked effect; it replaces `replays`."""
    asker = process if replays is not None else None
    evaluation = cases.judge(row.project_id, [row], now_us, asker)[row.id]
    decision = evaluation.verdict
    if decision.row == "11":  # the next step belongs to its compensation
        return Next(_COMPENSATION_OPEN)
    evidence = {
        "row": decision.row,
        "reason": decision.reason,
        "table": verdicts.VERSION,
        "inputs": evaluation.case.as_dict(),
    }
    if decision.answer == "execute" and replays in (None, row.attempt_count):
        return Next(facts=evidence)
    if replays is None:
        return Next(_refuse_unnamed(row))
    if replays != row.attempt_count or decision.answer != "replay":
        return Next(_refuse_replay(row, evaluation))
    if decision.asks_leave:
        return Next(NEEDS_LEAVE)
    number = row.attempt_count + 1
    key = fold.remote_key(row.id, number) if decision.remote_key == "new" else evaluation.remote_key
    values = {"replaces": replays, "verdict_row": decision.row, "remote_key": key}
    return Next(facts=evidence | {"replaces": replays}, values=values, again=row.leave == "used")


def _refuse_unnamed(row: EffectRow) -> Refusal:
    """Return the refusal of a second attempt that does not name the one it replaces."""
    if row.state not in ("planned", "failed"):
        return leaves.ALREADY_DISPATCHED if row.attempt_count else leaves.wrong_state(row)
    return leaves.none_given(row) if row.leave != "granted" else leaves.ALREADY_DISPATCHED


def _refuse_replay(row: EffectRow, judged: Judged) -> Refusal:
    reason = judged.verdict.reason
    if reason == "LEASE_HELD":
        return _LEASE_HELD
    if reason.startswith("GATE_"):
        return leaves.none_given(row)
    return leaves.ALREADY_DISPATCHED
