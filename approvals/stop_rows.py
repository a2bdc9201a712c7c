"""Stops as pages show them: scope, who set each and why, and a link."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import orjson
from django.urls import reverse

from accounts.models import Agent, Project
from approvals.models import Gate
from journal.models import Body
from ledger import stops as ledger_stops
from ledger.models import Effect
from ledger.models import Stop as Hold
from sessions.models import Session


@dataclass(frozen=True, slots=True)
class StopView:
    """A stop in force: `name` is its scope, perhaps agent text; `url` may be empty."""

    row: Hold
    name: str
    url: str
    reason: str


def load_live_stops(project: Project) -> list[Hold]:
    """Return every stop in force, the latest first."""
    return ledger_stops.load_stops(project.id)


def describe_stops(live_stops: Iterable[Hold]) -> list[StopView]:
    """Return the stops of one project with names, pages and reasons.

    The number of queries depends on the scopes, not on the number of stops.
    """
    stops = list(live_stops)
    if not stops:
        return []
    names = _load_names(stops[0].project_id, {(row.scope, row.subject) for row in stops})
    reasons = _load_reasons(stops)
    return [
        StopView(
            row,
            *names.get((row.scope, row.subject), ("", "")),
            reasons.get(row.opened_position, ""),
        )
        for row in stops
    ]


def describe_stop_scope(project: UUID, scope: str, subject: str) -> tuple[str, str]:
    """Return name and page of a scope; empty if the project does not have it."""
    return _load_names(project, [(scope, subject)]).get((scope, subject), ("", ""))


def _load_names(
    project: UUID, things: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return name and page by scope and subject, one query per scope of ids.

    What the project does not have is absent.
    """
    names: dict[tuple[str, str], tuple[str, str]] = {}
    ids_by_scope: dict[str, dict[UUID, str]] = {"agent": {}, "session": {}, "effect": {}}
    for scope, subject in things:
        if scope == "project":
            names[scope, subject] = "the whole project", ""
        elif scope == "tool" and 0 < len(subject) <= 100:
            names[scope, subject] = subject, reverse("tools")
        elif scope in ids_by_scope:
            with suppress(ValueError):
                ids_by_scope[scope][UUID(hex=subject)] = subject
    for agent in Agent.objects.filter(project=project, id__in=ids_by_scope["agent"]):
        names["agent", ids_by_scope["agent"][agent.id]] = agent.name, ""
    for session in Session.objects.filter(project=project, id__in=ids_by_scope["session"]):
        label = f"{session} {session.title or session.key}", reverse("session", args=[session.id])
        names["session", ids_by_scope["session"][session.id]] = label
    for effect in Effect.objects.filter(project=project, id__in=ids_by_scope["effect"]):
        names["effect", ids_by_scope["effect"][effect.id]] = (
            f"{effect} {effect.tool}",
            reverse("effect", args=[effect.id]),
        )
    return names


def find_blocking_stop(gate: Gate) -> Hold | None:
    """Return the stop that would block a gate's effect now, whatever is decided."""
    return ledger_stops.find_stop(
        gate.project_id, gate.session_id, gate.agent_id, gate.tool, gate.effect_id
    )


def _load_reasons(live_stops: Iterable[Hold]) -> dict[int, str]:
    """Return the reasons by position of the entry, without erased ones. One query."""
    at = [row.opened_position for row in live_stops]
    bodies = dict(Body.objects.filter(entry__in=at).values_list("entry", "text"))
    bodies_by_position = {position: orjson.loads(text) for position, text in bodies.items()}
    return {
        position: body["reason"]
        for position, body in bodies_by_position.items()
        if isinstance(body.get("reason"), str)
    }
