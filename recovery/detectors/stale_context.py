"""Detects a handoff that waits on something that is resolved."""

from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, OuterRef

from approvals.models import Gate
from ledger.models import Effect
from recovery.detectors.control_finding import MAX_FINDINGS, ControlFinding
from sessions.models import Message, Session

STALE_CONTEXT: Final = "stale_context"


def find_stale_context(session: Session, handoff: Any, now_us: int) -> list[ControlFinding]:
    """Return what the handoff waits on that is no longer open."""
    references: dict[str, list[UUID]] = {"gate": [], "effect": [], "message": []}
    for thing in handoff.waits_on:
        if thing.get("kind") in references and thing.get("ref"):
            try:
                references[thing["kind"]].append(UUID(thing["ref"]))
            except ValueError:
                continue
    over: list[tuple[str, Any, str]] = []
    project = session.project_id
    if references["gate"]:
        gates = Gate.objects.filter(project=project, id__in=references["gate"])
        ruled = gates.exclude(status="pending")
        over += [("gate", row, f"was {row.status.replace('_', ' ')}") for row in ruled]
        late = gates.filter(status="pending", decide_by_us__lt=now_us)
        over += [("gate", row, "has expired") for row in late]
    if references["effect"]:
        effects = Effect.objects.filter(project=project, id__in=references["effect"])
        settled = effects.exclude(state__in=("planned", "dispatched")).exclude(outcome="unknown")
        over += [("effect", row, f"is {row.state}") for row in settled]
    if references["message"]:
        reply = Message.objects.filter(project=project, in_reply_to=OuterRef("id"))
        answered = Message.objects.filter(
            Exists(reply), project=project, id__in=references["message"]
        )
        over += [("message", row, "was answered") for row in answered]
    return [
        ControlFinding(
            STALE_CONTEXT,
            f"{handoff.id}|{kind}|{row.id}",
            f"The handoff waits on {kind} {row}, which {became}. The handoff is out of date.",
            {"handoff": str(handoff.id), "kind": kind, "ref": str(row.id), "became": became},
            effect=row.id if kind == "effect" else None,
            subject=handoff.id,
        )
        for kind, row, became in over[:MAX_FINDINGS]
    ]
