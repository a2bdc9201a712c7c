"""A verdict in the words of the API: in the answer to whoever asks, and beside every refusal to plan or to dispatch."""

from typing import Any
from uuid import UUID

from journal.clock import now_us
from ledger import cases, fold, verdicts
from ledger.cases import Judged
from ledger.models import Effect
from ledger.rows import EffectRow


def present(
    project: UUID, row: Effect | EffectRow, process: str | None = None, *, same_intent: bool = True
) -> dict[str, Any]:
    """The verdict on one effect as of now; with None for `process` no lease is looked at."""
    now = now_us()
    return told(row, cases.judge(project, [row], now, process, same_intent=same_intent)[row.id], now)


def told(row: Effect | EffectRow, judged: Judged, now: int) -> dict[str, Any]:
    """A verdict in an answer. Times are microseconds of the server's clock; `as_of_us` is its now."""
    found = judged.verdict
    handle = f"e_{row.opened_position}"
    body: dict[str, Any] = {
        "verdict": found.answer,
        "row": found.row,
        "reason": found.reason,
        "sentence": verdicts.sentence(found, handle),
        "safe": verdicts.is_safe(found),
        "needs_leave": found.asks_leave,
        "attempt": judged.attempt if found.answer == "probe" else row.attempt_count,
        "as_of_us": now,
        "table_version": verdicts.VERSION,
        "inputs": judged.case.as_dict(),
    }
    if found.until_us is not None:
        body["until_us"] = found.until_us
    key = _remote_key(row, judged)
    if key:
        body["remote_key"] = key
    if judged.in_doubt:
        body["in_doubt"] = [{"attempt": doubt.number, "remote_key": doubt.remote_key} for doubt in judged.in_doubt]
    if judged.compensation is not None:
        body["compensation"] = str(judged.compensation)
    return body


def _remote_key(row: Effect | EffectRow, judged: Judged) -> str:
    """The key to use again, to look for or to cancel; that of the attempt which a replay opens where it is new."""
    if judged.verdict.row == "11":  # what is to be done is the compensation's, under keys of its own
        return ""
    if judged.verdict.remote_key == "new":
        return fold.remote_key(row.id, row.attempt_count + 1)
    return judged.remote_key if judged.verdict.answer in ("replay", "probe", "compensate", "escalate") else ""
