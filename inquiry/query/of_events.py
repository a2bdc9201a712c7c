"""Fields of journal entries."""

from typing import Final

from django.db.models import Q

from inquiry.indexes import (
    IS_OF_A_PERSON,
    IS_OF_A_RARE_KIND,
)
from inquiry.query.entity import Entity, Flag, pairs
from inquiry.query.fields import Actor, Choice, Context, Own, Test, Text
from inquiry.query.kinds import Handle, Number, Time
from inquiry.query.parts import agents, by_name, effect_id, flags, people, session, simple
from journal.models import COMMON, LANES, Entry
from ledger import breaches
from ledger.effects import facts_of
from sessions.models import Person, Project


def actors(project: Project, name: str) -> list[str]:
    """Return the journal's names for the actor displayed as `name`, or `name` itself."""
    persons = Person.objects.filter(user__in=people(project).filter(username=name))
    agent_ids = agents(project).filter(name=name).values_list("id", flat=True)
    return [
        *persons.values_list("pseudonym", flat=True),
        *(f"agent:{pk.hex}" for pk in agent_ids),
    ] or [name]


def violation(name: str, _context: Context) -> Test:
    facts = facts_of(name)
    condition = Q(IS_OF_A_RARE_KIND, kind="integrity.violation", lane="system", facts=facts)
    return Test(
        condition,
        lambda row: (
            row.kind == "integrity.violation" and row.lane == "system" and row.facts == facts
        ),
    )


EVENT: Final = Entity(
    "event",
    "events",
    "one fact in the journal",
    Entry,
    "at",
    "kind",
    by_name(
        Text(
            "kind",
            "Kind",
            "subject.verb",
            path="kind",
            index="entry_by_kind",
            common=COMMON,
            few=Q(IS_OF_A_RARE_KIND),
            facet=True,
        ),
        Own(
            "violation",
            "Violation",
            "the kind of integrity violation",
            choices=tuple(breaches.WORDS.items()),
            each=violation,
            index="entry_by_kind",
        ),
        Text("source", "Source", path="source", facet=True),
        Actor(
            "actor",
            "Actor",
            "a user name, an agent's name, or gatebook",
            path="actor",
            index="entry_by_person",
            few=Q(IS_OF_A_PERSON),
            actors=actors,
            facet=True,
        ),
        Choice("lane", "Lane", path="lane", choices=pairs(LANES), facet=True),
        session("entry_by_session", nullable=True, path="session"),
        Handle(
            "effect",
            "Effect",
            "e_12 or id",
            path="effect",
            find=effect_id,
            called="an effect",
            index="entry_by_effect",
            nullable=True,
            walled=True,
        ),
        Number("position", "Position", path="position", nullable=False, index="primary key"),
        Number("attempt", "Attempt", path="attempt"),
        Number("epoch", "Lease epoch", path="lease_epoch"),
        Text("entry_id", "Entry id", "made by the client", path="event_id"),
        Time("at", "Received", "server's clock", path="received_us", nullable=False),
        Time("occurred_at", "Occurred", "producer's clock", path="occurred_us"),
    ),
    flags(
        Flag("erased", "its body was erased", lambda _context: Test(Q(erasure__isnull=False))),
        Flag(
            "fenced",
            "Gatebook detected a report by a worker without the lease",
            simple(
                Q(IS_OF_A_RARE_KIND, kind="integrity.fenced", lane="system"),
                lambda row: row.kind == "integrity.fenced" and row.lane == "system",
                indexed=True,
            ),
        ),
        Flag(
            "violating",
            "an integrity violation detected by Gatebook",
            simple(
                Q(IS_OF_A_RARE_KIND, kind="integrity.violation", lane="system"),
                lambda row: row.kind == "integrity.violation" and row.lane == "system",
                indexed=True,
            ),
        ),
        Flag(
            "reported",
            "reported by an agent; kinds such as integrity.* and gate.* are then claims, not "
            "findings",
            simple(Q(lane="evidence"), lambda row: row.lane == "evidence"),
        ),
    ),
    {
        "effect": lambda rows: (rows, "id", "effect"),
        "session": lambda rows: (rows, "id", "session"),
    },
    "",
    many=True,
)
