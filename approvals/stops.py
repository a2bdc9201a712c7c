"""Stops (holds) as the pages tell them: what each is of, who set it and why, and where it leads."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from approvals.models import Gate
from approvals.reading import plan_body
from ledger import holds
from ledger.models import Effect, Hold
from sessions.models import Agent, Project, Session


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop in force. `name` is what it is of (for tools and sessions agent text); `url` its page, or empty."""

    hold: Hold
    name: str
    url: str
    reason: str


def in_force(project: Project) -> list[Hold]:
    """Every stop that stands, the latest first."""
    return holds.live(project.id)


def described(standing: Iterable[Hold]) -> list[Stop]:
    """Stops with names, pages and reasons."""
    return [Stop(hold, *named(hold.project_id, hold.scope, hold.subject), _reason(hold)) for hold in standing]


def named(project: UUID, scope: str, subject: str) -> tuple[str, str]:
    """What a stop would be of, and its page; empty for what this project does not have."""
    if scope == "project":
        return "the whole project", ""
    if scope == "tool":
        return (subject, reverse("tools")) if 0 < len(subject) <= 100 else ("", "")
    try:
        identity = UUID(hex=subject)
    except ValueError:
        return "", ""
    if scope == "agent":
        agent = Agent.objects.filter(project=project, id=identity).first()
        return (agent.name, "") if agent is not None else ("", "")
    if scope == "session":
        session = Session.objects.filter(project=project, id=identity).first()
        return (
            (f"{session} {session.title or session.key}", reverse("session", args=[identity])) if session else ("", "")
        )
    if scope == "effect":
        effect = Effect.objects.filter(project=project, id=identity).first()
        return (f"{effect} {effect.tool}", reverse("effect", args=[identity])) if effect else ("", "")
    return "", ""


def covering(gate: Gate) -> Hold | None:
    """The stop under which what a gate is about could not run now, whatever is decided."""
    return holds.stopping(gate.project_id, gate.session_id, gate.agent_id, gate.tool, gate.effect_id)


def _reason(hold: Hold) -> str:
    reason = plan_body(hold.opened_position).get("reason")
    return reason if isinstance(reason, str) else ""
