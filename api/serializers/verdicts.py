"""Serializes verdicts for responses and refusals."""

from typing import Any
from uuid import UUID

from db.clock import now_us
from ledger.fold import effect_state
from ledger.models import Effect
from ledger.store.effect_rows import EffectRow
from ledger.verdicts import evaluate, table
from ledger.verdicts.evaluate import Evaluation


def evaluate_verdict_json(
    project: UUID, row: Effect | EffectRow, process: str | None = None, *, same_intent: bool = True
) -> dict[str, Any]:
    """Evaluate and serialize an effect's verdict; `process=None` ignores leases."""
    now = now_us()
    return verdict_to_json(
        row,
        evaluate.evaluate_effects(project, [row], now, process, same_intent=same_intent)[row.id],
        now,
    )


def verdict_to_json(row: Effect | EffectRow, evaluation: Evaluation, now: int) -> dict[str, Any]:
    """Serialize a verdict. Times are microseconds of the server clock."""
    verdict = evaluation.verdict
    handle = f"e_{row.opened_position}"
    body: dict[str, Any] = {
        "verdict": verdict.answer,
        "row": verdict.row,
        "reason": verdict.reason,
        "sentence": table.describe_verdict(verdict, handle),
        "safe": table.is_safe_to_continue(verdict),
        "needs_permission": verdict.needs_new_permission,
        "attempt": evaluation.attempt if verdict.answer == "probe" else row.attempt_count,
        "as_of_us": now,
        "table_version": table.TABLE_VERSION,
        "inputs": evaluation.case.as_dict(),
    }
    if verdict.until_us is not None:
        body["until_us"] = verdict.until_us
    key = _remote_key(row, evaluation)
    if key:
        body["remote_key"] = key
    if evaluation.in_doubt:
        body["in_doubt"] = [
            {"attempt": doubt.number, "remote_key": doubt.remote_key}
            for doubt in evaluation.in_doubt
        ]
    if evaluation.compensation is not None:
        body["compensation"] = str(evaluation.compensation)
    return body


def _remote_key(row: Effect | EffectRow, evaluation: Evaluation) -> str:
    """Return the remote key to reuse, probe or cancel, or a replay's new key."""
    if evaluation.verdict.row == "11":  # the compensation has its own keys
        return ""
    if evaluation.verdict.remote_key == "new":
        return effect_state.make_remote_key(row.id, row.attempt_count + 1)
    return (
        evaluation.remote_key
        if evaluation.verdict.answer in ("replay", "probe", "compensate", "escalate")
        else ""
    )
