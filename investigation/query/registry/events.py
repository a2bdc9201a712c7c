"""Fields of journal entries."""

from typing import Final

from django.db.models import Q

from accounts.models import Person, Project
from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.fields.types import (
    Actor,
    Choice,
    ComputedChoice,
    Entity,
    Flag,
    Handle,
    Number,
    Text,
    Time,
    label_choices,
)
from investigation.query.registry.common import (
    constant_test,
    fields_by_name,
    find_effect_id,
    flags_by_name,
    project_agents,
    project_people,
    session_field,
)
from journal.models import COMMON, LANES, Entry
from ledger import violations
from ledger.partial_indexes import IS_OF_A_PERSON, IS_OF_A_RARE_KIND
from ledger.store.writer import violation_facts


def journal_actor_names(project: Project, name: str) -> list[str]:
    """Return the journal's names for the actor displayed as `name`, or `name` itself."""
    persons = Person.objects.filter(user__in=project_people(project).filter(username=name))
    agent_ids = project_agents(project).filter(name=name).values_list("id", flat=True)
    return [
        *persons.values_list("pseudonym", flat=True),
        *(f"agent:{pk.hex}" for pk in agent_ids),
    ] or [name]


def violation_test(name: str, _context: CompileContext) -> RowTest:
    facts = violation_facts(name)
    condition = Q(IS_OF_A_RARE_KIND, kind="integrity.violation", lane="system", facts=facts)
    return RowTest(
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
    fields_by_name(
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
        ComputedChoice(
            "violation",
            "Violation",
            "the kind of integrity violation",
            choices=tuple(violations.VIOLATION_LABELS.items()),
            each=violation_test,
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
            actors=journal_actor_names,
            facet=True,
        ),
        Choice("lane", "Lane", path="lane", choices=label_choices(LANES), facet=True),
        session_field("entry_by_session", nullable=True, path="session"),
        Handle(
            "effect",
            "Effect",
            "e_12 or id",
            path="effect",
            find=find_effect_id,
            called="an effect",
            index="entry_by_effect",
            nullable=True,
            in_project=True,
        ),
        Number("position", "Position", path="position", nullable=False, index="primary key"),
        Number("attempt", "Attempt", path="attempt"),
        Number("epoch", "Lease epoch", path="lease_epoch"),
        Text("entry_id", "Entry id", "made by the client", path="event_id"),
        Time("at", "Received", "server's clock", path="received_us", nullable=False),
        Time("occurred_at", "Occurred", "producer's clock", path="occurred_us"),
    ),
    flags_by_name(
        Flag("erased", "its body was erased", lambda _context: RowTest(Q(erasure__isnull=False))),
        Flag(
            "fenced",
            "Gatebook detected a report by a worker without the lease",
            constant_test(
                Q(IS_OF_A_RARE_KIND, kind="integrity.fenced", lane="system"),
                lambda row: row.kind == "integrity.fenced" and row.lane == "system",
                indexed=True,
            ),
        ),
        Flag(
            "violating",
            "an integrity violation detected by Gatebook",
            constant_test(
                Q(IS_OF_A_RARE_KIND, kind="integrity.violation", lane="system"),
                lambda row: row.kind == "integrity.violation" and row.lane == "system",
                indexed=True,
            ),
        ),
        Flag(
            "reported",
            "reported by an agent; kinds such as integrity.* and gate.* are then claims, not "
            "findings",
            constant_test(Q(lane="evidence"), lambda row: row.lane == "evidence"),
        ),
    ),
    {
        "effect": lambda rows: (rows, "id", "effect"),
        "session": lambda rows: (rows, "id", "session"),
    },
    "",
    many=True,
)
