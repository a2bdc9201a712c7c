"""Who may write to a session, its effects, tasks and gates: every kind, lane, relation and state
of the lease.

The expected answers are in the tables below; docs/decisions/0025-who-may-write.md has the reasons.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import orjson
import pytest
from django.db import connection, transaction
from django.db.models import Model

from accounts import agents
from approvals.models import Gate
from db.clock import now_us
from investigation.history import past_effects
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.models import Attempt, Effect
from monitoring.stuck import loops
from sessions import sessions
from sessions.models import (
    Artifact,
    Checkpoint,
    Decision,
    Handoff,
    Item,
    Lease,
    ObservedFact,
    Session,
    Task,
)
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import InboxScenario
from tests.ledger.test_convergence import undone
from tests.matrices import keep_core
from tests.pages.sample_data import connect_agent
from tests.recovery.lease_helpers import expire, hold

pytestmark = pytest.mark.django_db

# relation -> the result of commands and reports, by the lease: none, held by the session's own
# agent, held by another agent, expired. "-": the case does not exist.
LEASES: Final = ("none", "own", "other", "expired")
SPEAKS, LOST, OTHER = "speaks", "lease_lost", "other_agent"
EXPECTED: Final[dict[str, tuple[str, str, str, str]]] = {
    "own": (SPEAKS, SPEAKS, LOST, SPEAKS),
    "mate": (SPEAKS, LOST, LOST, SPEAKS),
    "holder": (
        "-",
        "-",
        SPEAKS,
        "-",
    ),  # with its epoch; the operator has removed it from the team
    "holder without epoch": ("-", "-", OTHER, "-"),
    "stale holder": ("-", OTHER, OTHER, OTHER),
    "stranger": (OTHER, OTHER, OTHER, OTHER),
    "importer": (OTHER, OTHER, OTHER, OTHER),
}
CASES: Final = [
    (relation, lease)
    for relation, row in EXPECTED.items()
    for lease, standing in zip(LEASES, row, strict=True)
    if standing != "-"
]
# The own agent with and without the lease, and one other agent in each standing.
CORE: Final = [
    ("own", "own"),
    ("own", "other"),
    ("mate", "expired"),
    ("holder", "other"),
    ("stranger", "none"),
]
# An agent that lost the lease still answers for its own attempts, as late evidence. "begun" belongs
# to the own agent.
ANSWERS: Final = ("acknowledge", "fail", "probe")
OWN_REPORTS: Final = ("effect.acknowledged", "effect.failed", "effect.probed")
# An effect approved for one agent is not dispatched by another agent of any team.
BOUND: Final = "dispatch"

_HASH: Final = {"type": "log", "sha256": "0" * 64, "size": 1, "media_type": "text/plain"}
COMMANDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "plan": (
        "/effects",
        {"session": "s-1", "effect_key": "new", "tool": "file.read", "arguments": {"x": 1}},
    ),
    "dispatch": (
        "/effects/{granted}/dispatch",
        {"process": "p-9", "intent_digest": "{granted.digest}"},
    ),
    "acknowledge": (
        "/effects/{begun}/acknowledge",
        {"attempt": 1, "outcome": "ok", "external_reference": "forged"},
    ),
    "fail": ("/effects/{begun}/fail", {"attempt": 1, "reason": "rejected"}),
    "probe": ("/effects/{begun}/probe", {"attempt": 1, "result": "hit"}),
    "supersede": ("/effects/{asked}/supersede", {}),
    "compensate": ("/effects/{done}/compensate", {"effect_key": "undo", "tool": "git.push"}),
    "cancel": ("/gates/{gate}/cancel", {}),
    "end": ("/sessions/{session}/end", {"status": "failed"}),
    "change": ("/sessions/{session}/change", {"title": "changed", "status": "waiting"}),
    "merge": ("/sessions/{session}/merged", {"into": "s-2"}),
    "create task": ("/sessions/{session}/tasks", {"key": "more"}),
    "change task": ("/tasks/{task}/change", {"state": "failed"}),
    "finish task": ("/tasks/{task}/done", {}),
    "items": ("/tasks/{task}/items", {"items": [{"key": "i", "state": "done"}]}),
    "checkpoint": ("/sessions/{session}/checkpoints", {"summary": "x", "cursor": "9"}),
    "decide": ("/sessions/{session}/decisions", {"key": "e", "choice": "right"}),
    "conclude": ("/decisions/{decision}/conclude", {"status": "abandoned", "outcome": "x"}),
    "hand off": ("/sessions/{session}/handoffs", {"in_progress": ["x"]}),
    "accept": ("/handoffs/{handoff}/accept", {}),
    "observe": ("/sessions/{session}/facts", {"name": "n", "value": 1, "source": "s"}),
    "artifact": ("/artifacts", {"session": "s-1", "effect": "{begun}", **_HASH}),
}
REPORTS: Final[dict[str, dict[str, Any]]] = {
    "effect.planned": {"effect_key": "new", "tool": "file.read"},
    "effect.dispatched": {"effect_key": "granted"},
    "effect.acknowledged": {"effect_key": "begun", "outcome": "ok", "external_reference": "forged"},
    "effect.failed": {"effect_key": "begun", "reason": "rejected"},
    "effect.probed": {"effect_key": "begun", "result": "hit"},
    "effect.superseded": {"effect_key": "asked"},
    "session.changed": {"title": "changed"},
    "session.waiting": {},
    "session.suspended": {},
    "session.ended": {"status": "failed"},
    "session.merged": {"into": "s-2"},
    "task.created": {"task": "more"},
    "task.changed": {"task": "t", "state": "failed"},
    "task.done": {"task": "t"},
    "item.done": {"task": "t", "item": "i"},
    "checkpoint.written": {"summary": "x", "cursor": "9"},
    "decision.recorded": {"decision": "e", "choice": "right"},
    "decision.concluded": {"decision": "d", "status": "abandoned"},
    "handoff.written": {"handoff": "g"},
    "fact.observed": {"name": "n", "value": 1, "source": "s"},
    "artifact.recorded": {"effect_key": "begun", **_HASH},
}
TABLES: Final[tuple[type[Model], ...]] = (
    *(
        Session,
        Effect,
        Attempt,
        Gate,
        Task,
        Item,
        Lease,
        Artifact,
        Checkpoint,
        Decision,
        Handoff,
        ObservedFact,
    ),
)


Rows = list[list[tuple[Any, ...]]]


def rows() -> Rows:
    """Return all rows that a request may change; the ORM would double the time of this file."""
    contents = []
    with connection.cursor() as cursor:
        for table in TABLES:
            key = table._meta.pk
            assert key is not None
            cursor.execute(f'SELECT * FROM "{table._meta.db_table}" ORDER BY "{key.column}"')
            contents.append(cursor.fetchall())
    return contents


class World:
    """A session of one agent with a row of each kind, other agents, and the lease of the case."""

    def __init__(self, inbox: InboxScenario, stack: ExitStack, lease: str, relation: str) -> None:
        self.owner, self.inbox, self.relation = inbox.agent, inbox, relation
        self.speakers = {
            name: stack.enter_context(
                connect_agent(agents.ensure_agent(inbox.project, name), scope)
            )
            for name, scope in {
                "mate": "agent",
                "holder": "agent",
                "stranger": "agent",
                "importer": "import",
            }.items()
        }
        self.team("crew", "deploy-7", "mate", "holder")
        self.ids = {"session": self.owner.session("s-1")["id"]}
        self.owner.session("s-2")
        self._work()
        self.epoch = None
        if relation == "stale holder":
            first = hold(self.speakers["holder"], "s-1", "p-h")
            self.epoch = first["epoch"]
            expire(first)
        if lease in ("own", "expired") and not (relation == "stale holder" and lease == "expired"):
            held = hold(self.owner, "s-1", "p-o")
            if lease == "expired":
                expire(held)
        elif lease == "other":
            who = "mate" if relation == "stale holder" else "holder"
            held = hold(self.speakers[who], "s-1", "p-x")
            self.epoch = held["epoch"] if relation == "holder" else self.epoch
        self.team("", "holder")

    def team(self, team: str, *names: str) -> None:
        """Put agents into a team."""
        with transaction.atomic():
            for name in names:
                agents.set_agent_team(self.inbox.project.agents.get(name=name), team)

    def _work(self) -> None:
        plan = self.owner.plan
        pending, granted = plan("asked", arguments={"n": 1}), plan("granted", arguments={"n": 2})
        self.inbox.answer(self.inbox.gate(granted), "reviewer")
        begun, done = (
            plan("begun", tool="file.read"),
            plan("done", tool="file.read", arguments={"n": 3}),
        )
        self.owner.dispatch(begun, "p-o")
        self.owner.dispatch(done, "p-o")
        self.owner.acknowledge(done)
        at = f"/sessions/{self.ids['session']}"
        self.ids |= {
            "asked": pending["id"],
            "granted": granted["id"],
            "granted.digest": granted["intent_digest"],
            "begun": begun["id"],
            "done": done["id"],
            "gate": str(self.inbox.gate(pending).id),
            "task": self.owner.post(f"{at}/tasks", {"key": "t"}).json()["id"],
            "decision": self.owner.post(f"{at}/decisions", {"key": "d", "choice": "left"}).json()[
                "id"
            ],
            "handoff": self.owner.post(f"{at}/handoffs").json()["id"],
        }

    @property
    def speaker(self) -> Caller:
        """The agent that sends the requests of this case."""
        if self.relation == "own":
            return self.owner
        name = "holder" if "holder" in self.relation else self.relation
        return self.speakers[name]

    def command(self, kind: str) -> Any:
        """Send a command as the speaker of the case."""
        path, body = COMMANDS[kind]
        body = {name: self.filled(value) for name, value in body.items()}
        return self.speaker.post(self.filled(path), body | self.named)

    def report(self, kind: str, **more: Any) -> dict[str, Any]:
        """Report a fact as the speaker of the case, and return the result of the item."""
        item = {
            "id": f"f-{kind}",
            "kind": kind,
            "session": "s-1",
            **REPORTS[kind],
            **self.named,
            **more,
        }
        answer = self.speaker.report([item])
        assert answer.status_code == 200, answer.text
        (result,) = answer.json()["results"]
        item_result: dict[str, Any] = result
        return item_result

    @property
    def named(self) -> dict[str, Any]:
        """The epoch field, if the speaker sends one."""
        return {} if self.epoch is None else {"lease_epoch": self.epoch}

    def filled(self, value: Any) -> Any:
        """Return a value with the ids of this world filled in."""
        if not isinstance(value, str):
            return value
        for name, identity in self.ids.items():
            value = value.replace(f"{{{name}}}", identity)
        return value


Build = Callable[[str, str], World]


@pytest.fixture
def build(inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    # A refused command may advance the session's clock, at most once a second: never in this test.
    monkeypatch.setattr(sessions, "SEEN_PRECISION_US", 2**62)
    with ExitStack() as stack:
        yield lambda relation, lease: World(inbox, stack, lease, relation)


@pytest.mark.parametrize(("relation", "lease"), keep_core(CASES, CORE))
def test_commands_and_reports_count_only_from_agents_that_may_write(
    build: Build, relation: str, lease: str
) -> None:
    """Try every command and every report, each in the same world."""
    world, standing = build(relation, lease), EXPECTED[relation][LEASES.index(lease)]
    before, last = rows(), Entry.objects.latest("position").position
    for kind in COMMANDS:
        with undone():
            _command(world, kind, standing, before, last)
    for kind in REPORTS:
        with undone():
            _report(world, kind, standing, before, last)


def _command(world: World, kind: str, standing: str, before: Rows, last: int) -> None:
    answer = world.command(kind)
    new = Entry.objects.filter(position__gt=last).order_by("position")
    late = standing == LOST and world.relation == "own" and kind in ANSWERS
    if standing == SPEAKS and kind == BOUND and world.relation != "own":
        assert code(answer) == (409, "NO_PERMISSION"), kind
        assert rows() == before
    elif standing == SPEAKS or late:
        assert answer.status_code in ((202, 200) if late else (200, 201)), (kind, answer.text)
        assert rows() != before, kind
        assert not new.filter(kind="integrity.fenced", facts__contains="standing").exists(), kind
        assert not late or not new.filter(kind__startswith="effect.", lane="command").exists(), kind
    else:
        expected = (409, "LEASE_LOST") if standing == LOST else (403, "OTHER_AGENT")
        assert code(answer) == expected, (kind, answer.text)
        assert rows() == before, kind
        (trace,) = new
        facts = orjson.loads(trace.facts)
        assert (trace.kind, facts["standing"], facts["kept"]) == (
            "integrity.fenced",
            standing,
            False,
        ), kind


def _report(world: World, kind: str, standing: str, before: Rows, last: int) -> None:
    result = world.report(kind)
    assert result["status"] == "created", (kind, result)
    entry = Entry.objects.filter(position__gt=last).earliest("position")
    own = world.relation == "own" and kind in (*OWN_REPORTS, "effect.dispatched")
    if standing == SPEAKS or (standing == LOST and (own or kind == "effect.planned")):
        assert ("note" in result, entry.lane) == (False, "evidence"), kind
        assert rows() != before, kind
        return
    assert (result["note"], entry.lane) == (standing, "claim"), kind
    assert rows() == before, kind
    assert Entry.objects.filter(position__gt=last).count() == 1, kind
    assert world.report(kind)["status"] == "duplicate", kind
    assert rows() == before, kind


@pytest.mark.parametrize("relation", ["stranger", "mate"])
def test_a_journal_with_claims_is_rebuilt_as_it_was(build: Build, relation: str) -> None:
    """The as-of view equals the rows of that moment: claims change neither, reports of the team
    change both."""
    world = build(relation, "none")
    before = rows()
    for kind in REPORTS:
        world.report(kind)
    assert (rows() == before) is (relation == "stranger")
    moment = JournalCut(Entry.objects.latest("position").position, now_us())
    names = (
        "state",
        "outcome",
        "permission",
        "permission_basis",
        "external_reference",
        "attempt_count",
        "violates",
        "agent_id",
    )
    stood = {
        effect.id: [getattr(effect, name) for name in names] for effect in Effect.objects.all()
    }
    session = Session.objects.get(key="s-1")
    for key in Effect.objects.values_list(
        "effect_key", flat=True
    ):  # only effects with later entries are rebuilt
        fact = {
            "kind": "effect.acknowledged",
            "session": "s-1",
            "effect_key": key,
            "outcome": "error",
            "attempt": 7,
        }
        assert world.owner.report([{"id": f"since-{key}", **fact}]).status_code == 200
    again = past_effects.rebuild_effects(world.inbox.project.id, list(stood), moment)
    assert {
        key: [getattr(effect, name) for name in names] for key, effect in again.items()
    } == stood
    then = past_effects.rebuild_sessions(world.inbox.project.id, [session.id], moment)[session.id]
    assert (then.status, then.title, then.agent_id) == (
        session.status,
        session.title,
        session.agent_id,
    )


def test_a_stranger_gets_no_lease_and_no_claim(build: Build) -> None:
    world = build("stranger", "expired")
    stranger, session = world.speaker, world.ids["session"]
    claim = {"process": "p", "kinds": ["session", "task"]}
    for body in ({"session": session}, {"task": world.ids["task"]}):
        assert code(stranger.post("/leases", body | {"process": "p"})) == (403, "OTHER_AGENT")
    assert stranger.post("/claims", claim).json() == {"claimed": None}
    assert code(stranger.post("/sessions", {"key": "s-1"})) == (403, "OTHER_AGENT")
    assert Entry.objects.filter(kind="integrity.fenced").count() == 3
    world.team("crew", "stranger")
    assert stranger.post("/claims", claim).json()["claimed"]["session"] == session


def test_a_worker_of_the_team_answers_for_its_own_attempt_after_it_lost_the_lease(
    build: Build,
) -> None:
    """The operator has removed it from the team by then."""
    world = build("stranger", "none")
    holder = world.speakers["holder"]
    world.team("crew", "holder")
    lease = hold(holder, "s-1", "p-h")
    effect = holder.plan("mine", tool="file.read", arguments={"n": 9}, lease_epoch=1)
    start = {"process": "p-h", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    assert holder.post(f"/effects/{effect['id']}/dispatch", start).status_code == 200
    expire(lease)
    hold(world.owner, "s-1", "p-o")
    world.team("", "holder")
    answer = {"attempt": 1, "outcome": "ok", "external_reference": "r-1"}
    with undone():
        fact = {
            "id": "1",
            "kind": "effect.acknowledged",
            "session": "s-1",
            "effect_key": "mine",
            "outcome": "ok",
        }
        assert "note" not in holder.report([fact]).json()["results"][0]
        assert Effect.objects.get(id=effect["id"]).state == "acknowledged"
    assert holder.post(f"/effects/{effect['id']}/acknowledge", answer).status_code == 202
    assert Effect.objects.get(id=effect["id"]).external_reference == "r-1"
    assert Entry.objects.filter(kind="integrity.fenced", facts__contains='"kept":true').count() == 1
    begun = world.ids["begun"]
    assert code(holder.post(f"/effects/{begun}/acknowledge", answer)) == (403, "OTHER_AGENT")


def test_a_session_only_named_by_others_belongs_to_its_first_reporter(
    build: Build,
) -> None:
    world = build("stranger", "none")
    naming = {"id": "1", "kind": "session.started", "session": "child", "parent": "to-come"}
    assert "note" not in world.speaker.report([naming]).json()["results"][0]
    spoken = {"id": "2", "kind": "effect.dispatched", "session": "to-come", "effect_key": "e"}
    assert "note" not in world.owner.report([spoken]).json()["results"][0]
    assert Session.objects.get(key="to-come").agent.name == "deploy-7"
    assert (
        world.speaker.report([spoken | {"id": "3"}]).json()["results"][0]["note"] == "other_agent"
    )
    assert (
        "note" not in world.owner.report([spoken | {"id": "4", "attempt": 2}]).json()["results"][0]
    )


def test_claims_are_shown_on_the_pages_of_effect_and_session(
    build: Build, inbox: InboxScenario
) -> None:
    world = build("stranger", "none")
    viewer = inbox.organization.client("viewer")
    pages = f"/effects/{world.ids['begun']}/", f"/sessions/{world.ids['session']}/"
    assert all("claims change nothing" not in viewer.get(page).content.decode() for page in pages)
    world.report("effect.failed")
    for page in pages:
        assert "claims change nothing" in viewer.get(page).content.decode(), page
    results = viewer.get(
        "/search/",
        {"q": f"event session:s_{Session.objects.get(key='s-1').opened_position} lane:claim"},
    )
    assert "effect.failed" in results.content.decode()


def test_a_repeated_command_gets_its_stored_answer_after_the_lease_was_lost(build: Build) -> None:
    world = build("own", "none")
    path, body = f"/sessions/{world.ids['session']}/tasks", {"key": "once"}
    done = world.owner.post(path, body, key="k")
    hold(world.speakers["mate"], "s-1", "p-m")
    again = world.owner.post(path, body, key="k")
    assert (again.status_code, again.json(), again.headers["Idempotent-Replay"]) == (
        201,
        done.json(),
        "true",
    )
    assert code(world.owner.post(path, body)) == (409, "LEASE_LOST")
    assert code(world.owner.post(path, {"key": "other"}, key="k")) == (422, "key_reuse")


def test_a_dispatch_under_the_key_of_another_agent_is_refused(build: Build) -> None:
    """A key belongs to its sender: the grant is repeated to its agent, and other agents are refused."""
    world = build("mate", "none")
    effect = world.owner.plan("twice", tool="file.read", arguments={"n": 5})
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    path = f"/effects/{effect['id']}/dispatch"
    granted = world.owner.post(path, body, key="k")
    assert granted.status_code == 200
    assert code(world.speaker.post(path, body, key="k")) == (409, "ALREADY_DISPATCHED")
    assert world.owner.post(path, body, key="k").json()["attempt"] == granted.json()["attempt"]
    assert code(world.owner.post(path, body | {"preconditions": {"a": 1}}, key="k")) == (
        422,
        "key_reuse",
    )
    assert Attempt.objects.filter(effect=effect["id"]).count() == 1


def test_a_stranger_with_the_epoch_of_a_live_lease_changes_nothing(build: Build) -> None:
    """The same holds in a leased session; its own agent is refused while another holds the lease."""
    world = build("stranger", "none")
    session = world.owner.session("leased", mode="leased")["id"]
    hold(world.owner, "leased", "p-o")
    effect = world.owner.plan("held", "leased", tool="file.read", lease_epoch=1)
    start = {"process": "p-o", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    assert world.owner.post(f"/effects/{effect['id']}/dispatch", start).status_code == 200
    before = rows()
    failure = {"attempt": 1, "reason": "rejected"}
    for named in ({}, {"lease_epoch": 1}, {"lease_epoch": 2}):
        assert code(world.speaker.post(f"/effects/{effect['id']}/fail", failure | named)) == (
            403,
            "OTHER_AGENT",
        )
        ended = world.speaker.post(f"/sessions/{session}/end", {"status": "failed", **named})
        assert code(ended) == (403, "OTHER_AGENT")
        fact = {
            "id": f"f-{named}",
            "kind": "effect.failed",
            "session": "leased",
            "effect_key": "held",
            **failure,
            **named,
        }
        assert world.speaker.report([fact]).json()["results"][0]["note"] == "other_agent"
        assert rows() == before
    holder = world.speakers["holder"]
    world.team("crew", "holder")
    hold(holder, "s-1", "p-h")
    end = {"status": "failed", "lease_epoch": 1}
    assert code(world.owner.post(f"/sessions/{world.ids['session']}/end", end)) == (
        409,
        "LEASE_LOST",
    )
    assert holder.post(f"/sessions/{world.ids['session']}/end", end).status_code == 200


def test_a_claim_is_no_progress_and_no_mark_on_the_timeline(
    build: Build, inbox: InboxScenario
) -> None:
    world = build("stranger", "none")
    viewer, session = inbox.organization.client("viewer"), world.ids["session"]
    page = f"/sessions/{session}/timeline/?view=json"
    before, seen = viewer.get(page).json(), Session.objects.get(id=session).seen_at_us
    first = Entry.objects.latest("position").position
    for kind in REPORTS:
        world.report(kind, occurred_us=1)
    assert viewer.get(page).json() == before
    assert Session.objects.get(id=session).seen_at_us == seen
    assert not loops._has_progressed(Session.objects.get(id=session).id, first, first + 1000)
    assert not Effect.objects.filter(effect_key="new").exists()


def test_a_session_only_named_by_others_is_opened_by_its_first_agent(
    build: Build,
) -> None:
    world = build("stranger", "none")
    naming = {"id": "1", "kind": "session.started", "session": "child", "parent": "to-come"}
    assert world.speaker.report([naming]).status_code == 200
    wish = {"session": "to-come", "effect_key": "e", "tool": "file.read"}
    assert code(world.owner.post("/effects", wish)) == (
        403,
        "OTHER_AGENT",
    )  # the session must be opened first
    assert world.owner.post("/sessions", {"key": "to-come"}).status_code == 201
    assert Session.objects.get(key="to-come").agent.name == "deploy-7"
    assert world.owner.post("/effects", wish).status_code == 201
    assert code(world.speaker.post("/effects", wish)) == (403, "OTHER_AGENT")
    assert code(world.speaker.post("/sessions", {"key": "to-come"})) == (403, "OTHER_AGENT")
