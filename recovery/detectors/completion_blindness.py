"""Detects work that continues for a task that is done."""

from typing import Final

from ledger.models import Effect
from ledger.open_effects import MAY_BE_OPEN
from ledger.states import OPEN_STATES as OPEN_EFFECTS
from recovery.detectors.control_finding import MAX_FINDINGS, ControlFinding
from sessions.models import Session

COMPLETION_BLINDNESS: Final = "completion_blindness"


def find_completion_blindness(session: Session) -> list[ControlFinding]:
    """Return effects that may still run although their task is done."""
    going = (
        Effect.objects.filter(
            MAY_BE_OPEN, session=session, state__in=OPEN_EFFECTS, task__state="done"
        )
        .exclude(state="failed", outcome="error")
        .exclude(permission="denied")
        .select_related("task")
        .order_by("-opened_position")
    )
    findings = []
    for effect in going[:MAX_FINDINGS]:
        sentence = (
            f"{effect} is open but its task {effect.task} is done. It may repeat finished work."
        )
        about = {"effect": str(effect.id), "handle": str(effect), "task": str(effect.task_id)}
        findings.append(
            ControlFinding(
                COMPLETION_BLINDNESS,
                str(effect.id),
                sentence,
                about,
                effect=effect.id,
                subject=effect.task_id,
            )
        )
    return findings
