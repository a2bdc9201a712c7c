"""Two thousand rows of sessions, effects, gates and entries, also as dictionaries."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import connection

from accounts.models import Agent, Membership, Person, Project, Repository
from approvals.models import Exemption, ExemptionVote, Gate
from db.ids import new_uuid7
from db.triggers import suspend_triggers
from journal.models import Entry
from ledger import states
from ledger.models import Effect
from sessions.lookup import derive_session_id
from sessions.models import Session

GUARDED: Final = [
    model._meta.db_table
    for model in (Agent, Membership, Person, Repository, Gate, Exemption, ExemptionVote)
]
EFFECTS: Final = 760
SESSIONS: Final = 60
US: Final = 1_000_000
START_US: Final = 1_795_000_000 * US  # a moment of 2026-11-18
NOW_US: Final = START_US + 100_000 * US
TOOLS: Final = (
    "git.push",
    "git.fetch",
    "mail.send",
    "Mail.send",
    "déploy",
    'odd "tool"',
    "a_b%c",
    "",
)
REFS: Final = ("", "main", "MAIN", "release/1", "feature x")
KINDS: Final = (
    "effect.planned",
    "effect.dispatched",
    "effect.acknowledged",
    "integrity.fenced",
    "effect.probed",
)


@dataclass
class Dataset:
    """Rows by entity, each a dictionary of plain values with its relations."""

    project: Project
    effects: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)
    exemptions: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def rows(self, entity: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = getattr(self, f"{entity}s")
        return rows


def fill(seed: int) -> Dataset:
    """Write the rows of a project, and rows of another project that no query may return."""
    random = Random(seed)
    # The entries are random too, so that no row follows them.
    with suspend_triggers(connection, GUARDED):
        dataset = Dataset(_project(random, "watched"))
        _write(dataset, random, SESSIONS, EFFECTS)
        other = Dataset(_project(random, "other"))
        _write(other, random, 4, 60)
    return dataset


def _project(random: Random, name: str) -> Project:
    project = Project.objects.create(name=name)
    for n in range(3):
        user = User.objects.create(username=f"{name}-{n}" if name == "other" else f"carol{n}")
        Person.objects.create(user=user, pseudonym=f"p_{user.username}", password_is_own=True)
        Membership.objects.create(project=project, user=user, role="operator")
        Agent.objects.create(project=project, name=f"robot{n}", owner=user)
    for n in range(2):
        Repository.objects.create(project=project, name=f"web{n}")
    return project


def _write(dataset: Dataset, random: Random, sessions: int, effects: int) -> None:
    project = dataset.project
    agents = list(project.agents.order_by("name"))
    users = [agent.owner for agent in agents]
    repositories = [None, *project.repositories.order_by("name")]
    position = Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0
    written: list[Session] = []
    for n in range(sessions):
        position += 1
        started = random.choice([None, START_US + n * US])
        written.append(
            Session(
                id=derive_session_id(project.id, f"s-{n}"),
                project=project,
                key=f"s-{n}",
                agent=random.choice(agents),
                repository=random.choice(repositories),
                owner=random.choice([None, *users]),
                title=random.choice(["", "Deploy the shop", "deploy"]),
                mode=random.choice(["leased", "reported", "one_shot"]),
                status=random.choice(["running", "waiting", "completed", "failed"]),
                resumes=random.choice([0, 0, 1, 3]),
                effect_count=random.randrange(4),
                opened_position=position,
                created_at_us=START_US + n * US,
                seen_at_us=NOW_US,
                started_at_us=started,
                ended_at_us=None
                if started is None
                else random.choice([None, started + random.randrange(9) * US]),
            )
        )
    Session.objects.bulk_create(written)
    made, entries, gates = [], [], []
    for n in range(effects):
        position += 1
        effect = _effect(random, n, position, random.choice(written), repositories)
        made.append(effect)
        for kind in KINDS[: random.randrange(4)] + random.choice([(), (), KINDS[3:4], KINDS[4:]]):
            position += 1
            entries.append(_entry(random, effect, kind, position))
        if random.random() < 0.12:
            position += 1
            gates.append(_gate(random, effect, position, users))
    Effect.objects.bulk_create(made)
    Entry.objects.bulk_create(entries)
    Gate.objects.bulk_create(gates)
    granted = []
    for n in range(12):
        used = random.choice([None, START_US + n * US])
        granted.append(
            Exemption(
                project=project,
                tool=random.choice(["*", "git.*"]),
                granted_by=random.choice(users),
                opened_position=position + 1 + n,
                granted_at_us=START_US,
                ends_at_us=START_US + random.choice([50_000, 200_000]) * US,
                uses=random.randrange(3),
                used_at_us=used,
            )
        )
    Exemption.objects.bulk_create(granted)
    for exemption in granted[::2]:
        vote = {"actor": "p", "step_up": "typed_digest", "position": 1}
        ExemptionVote.objects.create(
            exemption=exemption,
            user=exemption.granted_by,
            password_at_us=START_US,
            voted_at_us=START_US,
            **vote,
        )
        exemption.in_force_at_us = START_US
        exemption.save(update_fields=["in_force_at_us"])
    _collect_rows(dataset, written, made, entries, gates, granted)


def _effect(
    random: Random, n: int, position: int, session: Session, repositories: list[Any]
) -> Effect:
    state = random.choice(states.STATES)
    permission = random.choice(states.PERMISSIONS_OF_STATE[state])
    planned = random.choice([None, START_US + n * 60 * US])
    dispatched = None if state in ("planned", "superseded") else START_US + n * 60 * US + 5
    settled = (
        None if dispatched is None else random.choice([None, dispatched + random.randrange(4) * US])
    )
    tool = random.choice(TOOLS)
    return Effect(
        id=new_uuid7(),
        project=session.project,
        session=session,
        agent=session.agent,
        effect_key=f"k-{n}",
        opened_position=position,
        tool=tool,
        intent_digest=f"v1:{random.randrange(5)}",
        repository=random.choice(repositories),
        ref=random.choice(REFS),
        ref_class=random.choice(["", "production", "protected", "other"]),
        environment=random.choice(["", "prod", "main"]),
        state=state,
        outcome=random.choice(states.OUTCOME_OF_STATE[state]),
        permission=permission,
        permission_basis=random.choice(["observe", "policy"]),
        attempt_count=random.choice([1, 1, 2, 5]) if dispatched else 0,
        resolution="" if dispatched or state not in ("acknowledged", "failed") else "happened",
        external_reference=random.choice(["", "", "https://forge.example/pull/17", "a..b"]),
        violates=random.random() < 0.05,
        planned_at_us=planned,
        dispatched_at_us=dispatched,
        settled_at_us=settled,
        received_us=START_US + n * 60 * US,
        changed_us=START_US + n * 60 * US + 1,
        deadline_us=random.choice([None, NOW_US - 1, NOW_US, NOW_US + US])
        if state == "dispatched"
        else None,
    )


def _entry(random: Random, effect: Effect, kind: str, position: int) -> Entry:
    return Entry(
        position=position,
        project=effect.project_id,
        source="tests",
        event_id=f"e{position}",
        kind=kind,
        session=effect.session_id,
        effect=effect.id,
        actor=random.choice(["p_ann", "p_bob", "gatebook"]),
        lane=random.choice(
            ["command", "evidence", *(["system"] if kind.startswith("integrity.") else [])]
        ),
        received_us=effect.received_us + random.randrange(900) * US,
    )


def _gate(random: Random, effect: Effect, position: int, users: list[Any]) -> Gate:
    return Gate(
        project=effect.project,
        session=effect.session,
        effect=effect,
        agent=effect.agent,
        opened_position=position,
        plan_position=1,
        digest=f"v1:{position}",
        intent_digest=random.choice([effect.intent_digest, "v1:other"]),
        requirement={},
        requirement_hash="a" * 64,
        risk=random.choice(["low", "medium"]),
        reversibility=random.choice(["reversible", "compensable"]),
        tool=effect.tool,
        repository_name=random.choice(["", "web0"]),
        requester=random.choice([None, *users]),
        agent_owner=random.choice([None, *users]),
        requested_at_us=effect.received_us,
        decide_by_us=effect.received_us + 3_600 * US,
    )


def _collect_rows(
    dataset: Dataset,
    sessions: list[Session],
    effects: list[Effect],
    entries: list[Entry],
    gates: list[Gate],
    granted: Any,
) -> None:
    rows_by_id: dict[Any, dict[str, Any]] = {}
    for session in sessions:
        row = _plain(session) | {"effects": [], "gates": [], "events": []}
        row["repository"] = session.repository.name if session.repository else None
        row["agent"], row["owner"] = (
            session.agent.name,
            session.owner.username if session.owner else None,
        )
        rows_by_id[session.id] = row
        dataset.sessions.append(row)
    for effect in effects:
        row = _plain(effect) | {"gates": [], "events": [], "session": rows_by_id[effect.session_id]}
        row["agent"], row["repository"] = (
            effect.agent.name,
            effect.repository.name if effect.repository else None,
        )
        rows_by_id[effect.session_id]["effects"].append(row)
        rows_by_id[effect.id] = row
        dataset.effects.append(row)
    for entry in entries:
        row = _plain(entry) | {
            "session": rows_by_id[entry.session],
            "effect": rows_by_id[entry.effect],
        }
        row["session"]["events"].append(row)
        row["effect"]["events"].append(row)
        dataset.events.append(row)
    for gate in gates:
        row = _plain(gate) | {
            "session": rows_by_id[gate.session_id],
            "effect": rows_by_id[gate.effect_id],
        }
        row["agent"] = gate.agent.name
        row["requester"] = gate.requester.username if gate.requester else None
        row["agent_owner"] = gate.agent_owner.username if gate.agent_owner else None
        row["session"]["gates"].append(row)
        row["effect"]["gates"].append(row)
        dataset.gates.append(row)
    for exemption in granted:
        dataset.exemptions.append(_plain(exemption) | {"granter": exemption.granted_by.username})


def _plain(row: Any) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields} | {
        "pk": row.pk
    }
