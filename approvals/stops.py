"""Stops (holds) as the pages tell them: what each is of, who set it and why, and where it leads."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import orjson
from django.urls import reverse

from approvals.models import Gate
from journal.models import Body
from ledger import holds
from ledger.models import Effect
from ledger.models_holds import Hold
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
    """Stops of one project with names, pages and reasons; many take as many queries as one of each scope."""
    found = list(standing)
    if not found:
        return []
    names = _names(found[0].project_id, {(hold.scope, hold.subject) for hold in found})
    reasons = _reasons(found)
    return [
        Stop(
            hold,
            *names.get((hold.scope, hold.subject), ("", "")),
            reasons.get(hold.opened_position, ""),
        )
        for hold in found
    ]


def named(project: UUID, scope: str, subject: str) -> tuple[str, str]:
    """What a stop would be of, and its page; empty for what this project does not have."""
    return _names(project, [(scope, subject)]).get((scope, subject), ("", ""))


def _names(
    project: UUID, things: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Name and page by scope and subject; what the project does not have is absent. A query for each scope of ids."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    wanted: dict[str, dict[UUID, str]] = {"agent": {}, "session": {}, "effect": {}}
    for scope, subject in things:
        if scope == "project":
            found[scope, subject] = "the whole project", ""
        elif scope == "tool" and 0 < len(subject) <= 100:
            found[scope, subject] = subject, reverse("tools")
        elif scope in wanted:
            with suppress(ValueError):
                wanted[scope][UUID(hex=subject)] = subject
    for agent in Agent.objects.filter(project=project, id__in=wanted["agent"]):
        found["agent", wanted["agent"][agent.id]] = agent.name, ""
    for session in Session.objects.filter(project=project, id__in=wanted["session"]):
        told = f"{session} {session.title or session.key}", reverse("session", args=[session.id])
        found["session", wanted["session"][session.id]] = told
    for effect in Effect.objects.filter(project=project, id__in=wanted["effect"]):
        found["effect", wanted["effect"][effect.id]] = (
            f"{effect} {effect.tool}",
            reverse("effect", args=[effect.id]),
        )
    return found


def covering(gate: Gate) -> Hold | None:
    """The stop under which what a gate is about could not run now, whatever is decided."""
    return holds.stopping(
        gate.project_id, gate.session_id, gate.agent_id, gate.tool, gate.effect_id
    )


def _reasons(standing: Iterable[Hold]) -> dict[int, str]:
    """The reasons that were given, by the position of the entry; an erased one is absent. One query."""
    at = [hold.opened_position for hold in standing]
    bodies = dict(Body.objects.filter(entry__in=at).values_list("entry", "text"))
    told = {position: orjson.loads(text) for position, text in bodies.items()}
    return {
        position: body["reason"]
        for position, body in told.items()
        if isinstance(body.get("reason"), str)
    }
