"""Rows that hang on another project or session, where no batch of their own would see them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import Model

from accounts import projects, teams
from accounts.models import SAMPLE_IDS, Agent, Project, Repository, TeamMember
from approvals.gates.gates import GateConflict
from approvals.models import Addressee, Gate, Vote
from approvals.review import attached_diffs
from db import triggers
from db.clock import now_us
from db.ids import new_uuid7
from journal import entries, erasures
from journal.models import Entry
from ledger.models import Attempt, Effect
from pages.sample.sample_project import load_sample
from rebuild import batches
from rebuild.registry import list_row_checks
from sessions import capacity, messages
from sessions.models import (
    Artifact,
    Capacity,
    Checkpoint,
    Decision,
    Handoff,
    Item,
    Lease,
    Message,
    MessageRead,
    ObservedFact,
    Session,
    Task,
)
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_forged_rows import forge, furnish, run
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db

# Tables whose rows name their session; the copy of a row gets these values too.
OF_A_SESSION: Final[tuple[tuple[type[Model], dict[str, Any]], ...]] = (
    (Effect, {"effect_key": "forged", "call_id": "", "task": None}),
    (Task, {"key": "forged"}),
    (Artifact, {}),
    (Checkpoint, {}),
    (Decision, {"key": "forged"}),
    (Handoff, {"key": "forged"}),
    (ObservedFact, {}),
    (Lease, {"kind": "session", "subject": "forged", "task": None}),
    (Message, {}),
    (Capacity, {}),
    (Gate, {}),
)


def copy_row(model: type[Model], source: Model | None = None, /, **values: Any) -> Any:
    """Add a copy of a row with other values, as the owner, who can remove triggers."""
    row: Any = source or model._default_manager.exclude(project__in=projects.query_samples())[0]
    copied = {field.attname: getattr(row, field.attname) for field in model._meta.concrete_fields}
    key = model._meta.pk.attname
    copied[key] = new_uuid7() if isinstance(copied[key], UUID) else None
    copy: Any = model(**copied)
    for name, value in values.items():
        setattr(copy, name, value)
    with transaction.atomic(), triggers.suspend_triggers(connection, [model._meta.db_table]):
        model._base_manager.bulk_create([copy])
    return copy


def list_named() -> set[tuple[str, str, str]]:
    """Return what the check names: (difference, table, key)."""
    return {
        (row["difference"], row["table"], str(next(iter(row["key"].values()))))
        for row in list_differences()
    }


def name_added(*rows: Any) -> set[tuple[str, str, str]]:
    """Return how the check names rows that no entry gives."""
    return {("added", table, key) for table, key in list_keys(rows)}


def name_misplaced(*rows: Any) -> set[tuple[str, str, str]]:
    """Return how the check names rows that refer to what is gone or of another project."""
    return {("misplaced", table, key) for table, key in list_keys(rows)}


def list_keys(rows: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yield the table and the key of each row."""
    keys = {check.model: check.key[0] for check in list_row_checks()}
    for row in rows:
        yield row._meta.db_table, str(getattr(row, keys[type(row)]))


def count_rows(*models: type[Model]) -> list[int]:
    """Return the number of rows of each table."""
    return [model._base_manager.count() for model in models]


@pytest.fixture
def sample(inbox: InboxScenario) -> Project:
    """Return a sample project, next to a project in which each kind of row is."""
    furnish(inbox)
    return load_sample(inbox.user("administrator"), routine_days=1)


@pytest.mark.matrix
def test_rows_on_a_session_of_a_sample_are_named_and_stay(
    inbox: InboxScenario, sample: Project
) -> None:
    assert list_differences() == []
    session = Session.objects.filter(project=sample)[0]
    effect = Effect.objects.filter(project=sample)[0]
    added = [copy_row(model, session=session, **values) for model, values in OF_A_SESSION]
    gate = copy_row(Gate, Gate.objects.filter(status="denied")[0], session=session)
    added += [
        gate,
        copy_row(Attempt, effect=effect, number=9),
        copy_row(Vote, gate=gate),
        copy_row(Addressee, gate=gate),
        copy_row(Item, task=next(row for row in added if isinstance(row, Task))),
        copy_row(
            MessageRead,
            MessageRead.objects.all()[0],
            message=Message.objects.filter(project=sample)[0],
        ),
        # of the sample, and about a live effect and a live agent
        copy_row(Gate, project=sample, session=session),
        copy_row(Lease, project=sample, session=None, task=None, kind="resource", subject="x"),
    ]
    assert list_named() == name_misplaced(*added)
    assert run("--check", "--project", inbox.project.name)[0] == 1
    assert run("--check", "--table", "accounts_agent")[0] == 0
    code, text = run()
    assert (code, "misplaced: approvals_vote" in text) == (1, True), text
    assert list_named() == name_misplaced(*added)


@pytest.mark.matrix
def test_a_parent_that_a_report_names_freely_is_no_fault(
    inbox: InboxScenario, sample: Project
) -> None:
    parents = (Effect.objects.filter(project=sample)[0].id, new_uuid7(), "by-key")
    plan = {"kind": "effect.planned", "tool": "git.push", "session": "s-1"}
    inbox.agent.report(
        [
            {"id": f"r-{key}", "effect_key": f"c-{key}", "parent_effect": str(parent), **plan}
            for key, parent in enumerate(parents)
        ]
    )
    stored = Effect.objects.filter(effect_key__startswith="c-", parent_effect__isnull=False)
    assert stored.count() == 3
    assert list_differences() == []


@pytest.mark.matrix
@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL keeps what rows refer to")
def test_rows_under_a_row_that_is_gone_are_named_and_kept(inbox: InboxScenario) -> None:
    target = {"repository": "forum", "ref": "refs/heads/main"}
    inbox.agent.session("s-0")
    planned = inbox.agent.plan("e-1", session="s-0", tool="file.read", target=target)
    furnish(inbox)
    effect = Effect.objects.get(id=planned["id"])
    assert effect.repository_id is not None
    plans = Entry.objects.filter(effect=effect.id, kind="effect.planned", lane="command")
    with transaction.atomic():
        for position in plans.values_list("position", flat=True):
            erasures.erase_body(
                inbox.project.id, position, reason="t-1", actor="p_1", now_us=now_us()
            )
    assert list_differences() == []
    counted = count_rows(Session, Effect, Attempt, Gate, Vote, Task, Message)
    forge((f"DELETE FROM accounts_repository WHERE id = {_quote(effect.repository_id)}",))
    assert list_named() == name_misplaced(effect)
    code, text = run()
    assert (code, "misplaced: ledger_effect" in text) == (1, True), text
    assert count_rows(Session, Effect, Attempt, Gate, Vote, Task, Message) == counted
    # What the journal has of a row that others refer to is restored, and they with it.
    forge(("DELETE FROM approvals_policyset",))
    assert list_named() >= name_misplaced(effect, *Gate.objects.all())
    run()
    assert list_named() == name_misplaced(effect)
    assert count_rows(Session, Effect, Attempt, Gate, Vote, Task, Message) == counted
    repository = Repository(id=effect.repository_id, project=inbox.project, name="forum")
    Repository.objects.bulk_create([repository])
    assert list_differences() == []


@pytest.mark.matrix
def test_a_gate_about_an_effect_of_another_session_is_named_in_parts_too(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(inbox)
    inbox.agent.session("s-2")
    other = inbox.agent.plan("other", session="s-2", tool="file.read")
    gate = Gate.objects.filter(status="denied")[0]
    added = copy_row(Gate, gate, effect_id=UUID(other["id"]))
    assert list_named() == name_added(added)
    with monkeypatch.context() as parts:
        parts.setattr(batches, "MAX_SESSION_ENTRIES", 10)
        parts.setattr(batches, "MAX_BATCH_ENTRIES", 10)
        assert list_named() == name_misplaced(added)
    code, text = run()
    assert code == 0, text
    assert not Gate.objects.filter(pk=added.pk).exists()
    monkeypatch.setattr(batches, "MAX_SESSION_ENTRIES", 10)
    monkeypatch.setattr(batches, "MAX_BATCH_ENTRIES", 10)
    # A gate that was moved is moved back: its request says of which effect it is.
    forge((f"UPDATE approvals_gate SET effect_id = {_quote(UUID(other['id']))}",))
    moved = {row["key"]["id"] for row in list_differences() if row["difference"] == "changed"}
    assert moved == set(map(str, Gate.objects.values_list("id", flat=True)))
    code, text = run()
    assert code == 0, text
    assert list_differences() == []


def _quote(identity: UUID) -> str:
    """Return an id as both databases write it."""
    return f"'{identity if connection.vendor == 'postgresql' else identity.hex}'"


def test_a_session_with_the_id_of_zeros_is_listed(inbox: InboxScenario) -> None:
    furnish(inbox)
    session = copy_row(Session, id=UUID(int=0), key="zeros")
    effect = copy_row(Effect, session=session, effect_key="forged", call_id="", task=None)
    assert list_named() == name_added(session, effect)


def test_a_sample_that_no_entry_created_excuses_nothing(inbox: InboxScenario) -> None:
    furnish(inbox)
    genuine = projects.create_sample(actor="gatebook")
    forged = Project.objects.create(id=UUID(int=SAMPLE_IDS.stop - 1), name="Sample 9")
    rows = []
    for project in (genuine, forged):
        agent = copy_row(Agent, project=project, name="a", owner=inbox.user("operator"))
        rows.append(copy_row(Session, project=project, agent=agent, key="forged"))
        rows.append(agent)
    assert list_named() == name_added(forged, *rows[2:])
    # A live session does not become one of a sample because its row says so.
    forge(
        (
            f"UPDATE agent_sessions_session SET project_id = {_quote(genuine.id)}"
            " WHERE key = 's-1' AND opened_position > 0 AND status <> ''",
        )
    )
    changed = {
        (row["table"], row.get("column"))
        for row in list_differences()
        if row["difference"] == "changed"
    }
    assert ("agent_sessions_session", "project_id") in changed


def test_a_message_that_no_entry_sent_is_named_and_not_delivered(
    inbox: InboxScenario, sample: Project
) -> None:
    agent = Agent.objects.get(id=inbox.organization.agent.id)
    genuine = inbox.agent.post("/messages", {"to": agent.name, "body": "yours"}).json()["id"]
    sent = Message.objects.get(id=genuine)
    plan = Entry.objects.filter(project=inbox.project.id, kind="effect.planned")[0]
    of_sample = Message.objects.filter(project=sample)[0]
    added = [
        # another project's row that names this agent, and rows that show the texts of others
        copy_row(Message, sent, project=sample, session=None, from_agent=None),
        copy_row(Message, of_sample, recipient=agent, session=None, read_at_us=None),
        copy_row(Message, sent),
        copy_row(Message, sent, opened_position=plan.position),
        copy_row(Message, sent, opened_position=of_sample.opened_position),
    ]
    assert list_named() >= name_misplaced(*added[:2]) | name_added(*added[2:])
    assert not list_named() & name_misplaced(*added[2:])
    listed = inbox.agent.get("/messages?box=mine").json()["items"]
    assert [(item["id"], item["body"]) for item in listed] == [(genuine, "yours")]
    views = messages.load_messages_about(inbox.project.id, agent, None, None, 10)
    assert [view.body for view in views if view.message in added] == [None] * 3
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, sent.opened_position, reason="t-1", actor="p_1", now_us=now_us()
        )
    listed = inbox.agent.get("/messages?box=mine").json()["items"]
    assert [(item["id"], item.get("body")) for item in listed] == [(genuine, None)]


def test_forged_messages_at_low_positions_hide_no_message(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent.objects.get(id=inbox.organization.agent.id)
    genuine = [
        inbox.agent.post("/messages", {"to": to, "body": to}).json()["id"]
        for to in (agent.name, "shared", agent.name)
    ]
    sent = Message.objects.get(id=genuine[0])
    for position in [*range(1, 6), *[sent.opened_position] * 3]:
        copy_row(Message, sent, opened_position=position)
        copy_row(Message, sent, opened_position=position, recipient=None)
    for window in (1, 500):
        monkeypatch.setattr(messages, "_WINDOW_ROWS", window)
        first = inbox.agent.get("/messages?limit=2").json()
        assert [item["id"] for item in first["items"]] == genuine[:2]
        last = inbox.agent.get(f"/messages?limit=2&after={first['next']}").json()
        assert ([item["id"] for item in last["items"]], last["next"]) == (genuine[2:], None)
    letters, more = messages.load_unread_messages(inbox.project.id, agent.id, limit=2)
    assert ([str(letter.message.id) for letter in letters], more) == (genuine[:2], True)
    # Where the reading is too long, a reader goes on behind it.
    monkeypatch.setattr(messages, "_WINDOW_ROWS", 1)
    monkeypatch.setattr(messages, "_MOST_WINDOWS", 1)
    assert messages.load_unread_messages(inbox.project.id, agent.id, limit=2) == ([], True)
    listed, after = list[dict[str, Any]](), "1"  # the first of the forged rows
    while after is not None:
        page = inbox.agent.get(f"/messages?limit=2&after={after}").json()
        listed, after = [*listed, *page["items"]], page["next"]
    assert {item["id"] for item in listed} >= set(genuine[1:])


def test_a_diff_that_no_entry_recorded_for_the_effect_is_named_and_not_shown(
    inbox: InboxScenario, sample: Project
) -> None:
    gate = Gate.objects.get(project=inbox.project, tool="deploy")
    recorded = {"type": "diff", "sha256": "b" * 64, "size": 3, "media_type": "text/x-diff"}
    elsewhere = inbox.agent.session("s-2")["id"]  # an agent may record it in another session
    for session, name in (("s-1", "a.diff"), (elsewhere, "b.diff")):
        body = {"session": session, "effect": str(gate.effect_id), "name": name, **recorded}
        assert inbox.agent.post("/artifacts", body).status_code == 201
    assert list_differences() == []
    genuine = Artifact.objects.get(name="a.diff")
    about = {"effect": gate.effect_id, "type": "diff"}
    other = Artifact.objects.get(type="log")
    added = [
        copy_row(Artifact, genuine, session=Session.objects.filter(project=sample)[0]),
        copy_row(Artifact, genuine),
        copy_row(Artifact, other, **about),
    ]
    assert list_named() == name_misplaced(added[0]) | name_added(*added[1:])
    forge((f"UPDATE agent_sessions_artifact SET effect = {_quote(gate.effect_id)}, type = 'diff'",))
    changed = {row["column"] for row in list_differences() if row["difference"] == "changed"}
    assert changed == {"effect", "type"}
    shown = attached_diffs.load_attached_diffs(gate, {})
    assert [diff.name for diff in shown] == ["a.diff", "b.diff"]


def test_a_named_diff_that_no_entry_recorded_is_not_shown(inbox: InboxScenario) -> None:
    """The owner names a row after the pushed commit, or gives it the position that a plan names."""
    inbox.agent.session("s-1")
    recorded = {"type": "diff", "sha256": "b" * 64, "size": 3, "media_type": "text/x-diff"}
    for name in ("9d02a77.diff", "b.diff"):
        body = {"session": "s-1", "name": name, **recorded}
        assert inbox.agent.post("/artifacts", body).status_code == 201
    named, other = Artifact.objects.order_by("opened_position")
    arguments = {"command": "git push origin 9d02a77:main", "diff": str(other), "of": "c" * 64}
    gate = inbox.gate(inbox.plan("push", arguments=arguments))
    plan = {"arguments": arguments}
    before = [diff.artifact for diff in attached_diffs.load_attached_diffs(gate, plan)]
    assert before == [named.id, other.id]
    for values in ({}, {"sha256": "c" * 64}, {"opened_position": gate.opened_position}):
        copy_row(Artifact, named, **values)
        copy_row(Artifact, other, **values)
    shown = attached_diffs.load_attached_diffs(gate, plan)
    assert [diff.artifact for diff in shown] == before


def test_a_diff_of_a_claim_is_not_shown(inbox: InboxScenario) -> None:
    """An agent claims what it recorded; the owner adds a row for the entry."""
    gate = inbox.gate(inbox.plan("push"))
    claimed = new_uuid7()
    with transaction.atomic():
        position = entries.append_entries(
            [
                entries.Draft(
                    *(inbox.project.id, "claims", "c-1", "artifact.recorded", "claim", "agent:1"),
                    "{}",
                    session=gate.session_id,
                    effect=gate.effect_id,
                    subject=claimed,
                )
            ],
            now_us(),
        )[0].position
    body = {"session": "s-1", "type": "diff", "sha256": "b" * 64, "size": 3}
    assert inbox.agent.post("/artifacts", body | {"media_type": "text/x-diff"}).status_code == 201
    copy_row(
        Artifact,
        Artifact.objects.get(),
        id=claimed,
        effect=gate.effect_id,
        opened_position=position,
    )
    assert attached_diffs.load_attached_diffs(gate, {}) == ()


_OF_LEADS: Final = """name: leads
rules:
  - id: all
    title: The leads decide
    match: {}
    outcome: require
    require: {teams: [leads]}
"""


@pytest.mark.matrix
def test_a_member_of_a_team_who_is_of_another_project_is_named_and_does_not_count(
    inbox: InboxScenario,
) -> None:
    sample = projects.create_sample(actor="gatebook")
    inbox.rules(_OF_LEADS)
    rita, sam = inbox.person("rita"), inbox.person("sam")
    with transaction.atomic():
        team = teams.create_team(inbox.project, "leads")
        teams.add_team_member(team, rita)
    gate = inbox.gate(inbox.plan())
    assert list_differences() == []
    member = copy_row(TeamMember, membership=sam, project=sample)
    assert list_named() == {("added", "accounts_teammember", str(team.id))}
    with pytest.raises(GateConflict):
        inbox.answer(gate, "sam")
    assert run()[0] == 0
    assert not TeamMember.objects.filter(pk=member.pk).exists()
    forge((f"UPDATE accounts_teammember SET project_id = {_quote(sample.id)}",))
    assert {row.get("column") for row in list_differences()} == {"project_id", None}
    assert run()[0] == 0
    assert list_differences() == []
    assert TeamMember.objects.get().membership == rita


def test_a_report_of_capacity_of_another_project_is_named_and_throttles_nothing(
    inbox: InboxScenario,
) -> None:
    sample = projects.create_sample(actor="gatebook")
    inbox.agent.session("s-1")
    assert inbox.agent.post("/capacity", {"session": "s-1", "queue": 101}).status_code == 200
    report = Capacity.objects.get()
    session, agent = report.session_id, report.agent_id
    assert session is not None
    assert capacity.find_throttle(agent, session, now_us()) is not None
    Capacity.objects.all().delete()
    added = copy_row(Capacity, report, project=sample, session=None)
    missing = ("missing", "agent_sessions_capacity", str(agent))
    assert list_named() == {missing} | name_added(added)
    assert capacity.find_throttle(agent, session, now_us()) is None
    assert capacity.load_capacity(agent, session) is None
    assert run()[0] == 0
    assert Capacity.objects.get().project == inbox.project
