"""Doors for recovery: what may be done with an effect now, and what a look at the remote found."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from ingest.doors import Call, as_json, reading
from ingest.paging import parameters
from ingest.problems import Problem
from ingest.views.effects import describe
from journal.clock import now_us
from ledger import cases, fold, verdicts
from ledger.cases import Judged
from ledger.models import Effect
from ledger.rows import EffectRow


@reading
def get_verdict(call: Call, effect: UUID) -> HttpResponse:
    """What may be done with an effect now. `process` is what the asking worker calls itself where it holds a lease."""
    asked = parameters(call.request, {"process"})
    row = Effect.objects.filter(project=call.project, id=effect).first()
    if row is None:
        raise Problem(404, "not_found", "This project has no such effect; plan it first with POST /effects.")
    now = now_us()
    judged = cases.judge(call.project, [row], now, asked.get("process", ""))[row.id]
    return as_json(200, {"effect": describe(row), **told(row, judged, now)})


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
    if judged.verdict.remote_key == "new":
        return fold.remote_key(row.id, row.attempt_count + 1)
    return judged.remote_key if judged.verdict.answer in ("replay", "probe", "compensate", "escalate") else ""
