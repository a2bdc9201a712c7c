"""A project in which people look for what happened: staged inside the process of a live server."""

import hashlib
import io
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from django.core.management import call_command
from django.db import transaction
from django.test import override_settings
from django.urls import reverse

from accounts import agents, people, projects, repositories, tokens
from accounts.models import ROLES, AgentToken
from db.clock import now_us, simulate_clock
from investigation.fulltext import indexer
from investigation.models import SavedQuery
from journal import outbox
from ledger.models import Effect
from monitoring.models import JobHeartbeat
from monitoring.stuck import sweeper
from notifications import channels, notifications
from notifications.models import Notification
from pages.sample.sample_project import load_sample
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import PASSWORD, Organization, signed_in
from tests.pages.sample_data import connect_agent
from tests.recovery.stuck_helpers import heartbeat, pass_by

RULES = """
name: harbour
rules:
  - id: edits
    title: Editing the working copy
    match: {tools: [Edit]}
    outcome: require
  - id: push
    title: A push
    match: {tools: [git.push]}
    outcome: require
    require: {minimum: 1, decide_within: 1h}
  - id: rest
    title: Everything else
    match: {}
    outcome: allow
"""
NIGHT = "crane-9"
SAMPLE_OWNER = "sigrid"
NAMES = {"viewer": "vilma", "reviewer": "rolf", "operator": "otto", "administrator": "adele"}
TARGET = {"repository": "payments-api", "ref": "refs/heads/main"}
PULL = "https://forge.example/web/pull/17"
PATCH = (
    "--- a/docs/a.md\n+++ b/docs/a.md\n@@ -1 +1 @@\n-old words\n+new words\n"
    "--- a/deploy/production/values.yaml\n+++ b/deploy/production/values.yaml\n"
    "@@ -14 +14 @@\n-replicas: 12\n+replicas: 2\n"
)


def stage() -> str:
    """Write the project; return the ids and handles that tests use, as JSON."""
    with override_settings(
        EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend",
        ALLOWED_HOSTS=["*"],
    ):
        organization = _build()
        with (
            connect_agent(organization.agent) as caller,
            connect_agent(organization.other_token.agent) as other,
        ):
            work = _Work(InboxScenario(organization, caller), other)
            work.do()
            work.ids["days"] = _load_sample()
            work.ids["keys"] = {name: signed_in(name) for name in (*NAMES.values(), SAMPLE_OWNER)}
            return json.dumps(work.ids)


def _load_sample() -> dict[str, int]:
    """Load a sample project for a person of its own; return its effects by their made-up day."""
    with transaction.atomic():
        scratch = projects.create_project("scratch")
        owner = people.add_project_member(scratch, SAMPLE_OWNER, "administrator", PASSWORD).user
    sample = load_sample(owner, routine_days=1)
    times = Effect.objects.filter(project=sample).values_list("received_us", flat=True)
    days = [str(datetime.fromtimestamp(us / 1_000_000, UTC).date()) for us in times]
    return dict(sorted(Counter(days).items()))


def _build() -> Organization:
    with transaction.atomic():
        project = projects.create_project("harbour")
        members = {
            role: people.add_project_member(project, NAMES.get(role, f"h-{role}"), role, PASSWORD)
            for role in ROLES
        }
        agent = agents.ensure_agent(project, "tug-3", members["operator"].user)
        night = agents.ensure_agent(project, NIGHT)
        for each in (agent, night):
            tokens.issue_token(each, expires_in=None, actor="gatebook")
        repository = repositories.ensure_repository(project, "payments-api")
        return Organization(
            project=project,
            other=project,
            members=members,
            neighbour=members["viewer"],
            agent=agent,
            token=AgentToken.objects.get(agent=agent),
            other_token=AgentToken.objects.get(agent=night),
            repository=repository,
            other_repository=repository,
        )


class _Work:
    """What the agents of the project did, and what people answered."""

    def __init__(self, inbox: InboxScenario, other: Caller) -> None:
        self.inbox, self.agent, self.other = inbox, inbox.agent, other
        self.ids: dict[str, Any] = {}

    def do(self) -> None:
        self._begin()
        self._wait_and_stick()
        for session in ("first", "second"):
            self._repeat_across_sessions(session)
        self._decide()
        self._repeat_in_one_session()
        self._watch("effect tool:lint.run outcome:error")
        self._fail()
        self._run_without_permission()
        self._ask()
        self._check()

    def _done(
        self, session: str, key: str, tool: str, agent: Caller | None = None, **more: Any
    ) -> dict[str, Any]:
        """Plan an effect in an open or new session, run it and acknowledge it."""
        agent = agent or self.agent
        fields = {name: more.pop(name) for name in ("outcome", "result") if name in more}
        agent.session(session)
        planned = agent.plan(key, session, **{"tool": tool, "arguments": {"of": key}, **more})
        agent.dispatch(planned)
        agent.acknowledge(planned, **fields)
        return planned

    def _begin(self) -> None:
        self.inbox.rules(RULES)
        for name in ("git.push", "Edit", "deploy", "mail.send", "forge.comment"):
            self.inbox.declare(name, tool_class="idempotency_key")
        self.inbox.declare("file.read", "read", "read_only")
        self.inbox.declare("crane.turn", "compensable", "probeable")
        every: dict[str, Any] = dict.fromkeys(channels.TOPIC_FLAGS, True)
        silent: dict[str, Any] = dict.fromkeys(channels.TOPIC_FLAGS, False)
        project, boss = self.inbox.project, self.inbox.user(NAMES["administrator"])
        owner = self.inbox.user(NAMES["operator"])
        channels.add_channel(project, "email", "team@example.org", boss, **every)
        channels.add_channel(project, "email", "otto@example.org", owner, person=owner, **silent)

    def _wait_and_stick(self) -> None:
        """A worker that dies, one whose tool has no answer yet, and a request that waits long."""
        for key, ttl_s in (("dead", 60), ("unsettled", 3600)):
            title = {"dead": "Nightly berth plan", "unsettled": "Turn the crane"}[key]
            session = self.other.session(key, mode="leased", title=title)
            lease = self.other.post(
                "/leases", {"session": session["id"], "process": "w-1", "ttl_s": ttl_s}
            )
            assert lease.status_code == 201, lease.text
            self.ids[key] = session["id"]
        epoch = lease.json()["epoch"]
        turn = self.other.plan(
            "turn", "unsettled", tool="crane.turn", arguments={"by": 90}, lease_epoch=epoch
        )
        body = {"process": "w-1", "intent_digest": turn["intent_digest"], "lease_epoch": epoch}
        answer = self.other.post(f"/effects/{turn['id']}/dispatch", body)
        assert answer.status_code == 200, answer.text
        self.ids |= {"turn": turn["id"], "turn handle": turn["handle"]}
        with transaction.atomic():
            pass_by(1900, agent=NIGHT)
        heartbeat(self.other, lease.json(), progress="turning")
        # The trigger of the schema fixes the times of a request: it is made under another clock.
        with simulate_clock(now_us() - 40 * 60 * 1_000_000):
            self.agent.session("asked", title="Push the tide table")
            waits = self.agent.plan(
                "waits", "asked", tool="git.push", arguments={"command": "git push origin tides"}
            )
        self.ids["waits"] = waits["gate"]["id"]

    def _repeat_across_sessions(self, session: str) -> None:
        mail = {"to": "ann@example.org", "subject": "Invoice 17"}
        sent = self._done(session, "mail", "mail.send", arguments=mail)
        target = {"repository": "payments-api", "resource": PULL}
        body = {"first": "Looks good to me", "second": "Please test it on Friday"}[session]
        comment = self._done(
            session, "comment", "forge.comment", arguments={"body": body}, target=target
        )
        self.ids |= {
            f"{session} session": sent["session"],
            f"{session} mail": sent["id"],
            f"{session} mail handle": sent["handle"],
            f"{session} comment handle": comment["handle"],
        }

    def _decide(self) -> None:
        """A request that a person approved, with its result, and one that was denied."""
        self.agent.session("release", title="Release 2.8.1", on_behalf_of=NAMES["operator"])
        approved = self.agent.plan(
            "approved",
            "release",
            tool="git.push",
            arguments={"command": "git push origin topic", "note": "the lighthouse fix"},
            target={"repository": "payments-api", "ref": "topic"},
        )
        gate = self.inbox.gate(approved)
        voted = self.inbox.answer(gate, NAMES["reviewer"], reason="agreed with the harbour master")
        assert voted.refusal is None, voted.refusal
        self.agent.dispatch(approved)
        self.agent.acknowledge(approved, result={"text": "pushed to the quay"})
        denied = self.agent.plan(
            "denied", "release", tool="git.push", arguments={"command": "git push origin storm"}
        )
        self.inbox.answer(self.inbox.gate(denied), NAMES["administrator"], "deny", "not in a storm")
        self.ids |= {
            "release": approved["session"],
            "approved": approved["id"],
            "approved handle": approved["handle"],
            "approved gate": str(gate),
            "denied handle": denied["handle"],
        }

    def _repeat_in_one_session(self) -> None:
        """One session repeats an act; another only reads the same file again."""
        for number in range(5):
            acted = self._done(
                "acts", f"make-{number}", "ci.run", arguments={"job": 1}, result="red"
            )
            read = self._done("reads", f"read-{number}", "file.read", arguments={"path": "README"})
        for name, effect in (("acts", acted), ("reads", read)):
            self.ids[name] = effect["session"]
            self.ids[f"{name} handle"] = str(Session.objects.get(id=effect["session"]))

    def _watch(self, query: str) -> None:
        """Save a query as the operator and turn its alerts on."""
        client = self.inbox.organization.client(NAMES["operator"])
        client.post(reverse("saved_queries"), {"name": "Lint errors", "q": query})
        saved = SavedQuery.objects.get(project=self.inbox.project)
        answer = client.post(reverse("saved_query_alerts", args=[saved.pk]), {"do": "on"})
        assert answer.status_code == 302

    def _fail(self) -> None:
        """Sessions that ended well and badly; effects that ended with an error are failures."""
        for number in range(3):
            outcome = "error" if number else "ok"
            done = self._done(
                "bad", f"lint-{number}", "lint.run", outcome=outcome, result=f"{number}"
            )
        self._end(done["session"], "failed")
        self._end(self._done("good", "fine", "lint.run", result="clean")["session"], "completed")
        fact = {"id": new_key(), "kind": "effect.planned", "effect_key": "e", "tool": "note"}
        reported = self.agent.session("reported", mode="reported")
        answer = self.agent.report([{**fact, "session": reported["id"]}])
        assert answer.status_code == 200, answer.text
        self.ids["bad"] = done["session"]

    def _end(self, session: str, status: str) -> None:
        answer = self.agent.post(f"/sessions/{session}/end", {"status": status})
        assert answer.status_code == 200, answer.text

    def _run_without_permission(self) -> None:
        """An effect that Gatebook knows from reports alone, and that needed an approval."""
        session = self.agent.session("hasty", title="Hasty push")["id"]
        fact = {"session": session, "effect_key": "hasty", "attempt": 1}
        call = {
            "tool": "git.push",
            "arguments": {"command": "git push origin hasty:main"},
            "target": TARGET,
        }
        facts: list[dict[str, Any]] = [
            {"kind": "effect.planned", "session": session, "effect_key": "hasty", **call},
            {"kind": "effect.dispatched", **fact},
            {"kind": "effect.acknowledged", "outcome": "ok", **fact},
        ]
        answer = self.agent.report([{"id": new_key(), **each} for each in facts])
        assert answer.status_code == 200, answer.text
        (effect,) = self.agent.get("/effects", session=session).json()["items"]
        self.ids |= {"hasty": effect["id"], "hasty handle": effect["handle"]}

    def _ask(self) -> None:
        """Requests that wait: an edit, and a push with a diff that the agent recorded."""
        edit = self.agent.plan(
            "edit",
            "release",
            tool="Edit",
            arguments={"file_path": "payments/rounding.py", "old_string": "a", "new_string": "b"},
            target=TARGET,
        )
        push = self.agent.plan(
            "push",
            "release",
            tool="git.push",
            arguments={"command": "git push origin HEAD:main"},
            target=TARGET,
        )
        content = PATCH.encode()
        artifact = self.agent.post(
            "/artifacts",
            {
                "session": push["session"],
                "effect": push["id"],
                "type": "diff",
                "media_type": "text/x-diff",
                "name": "push.diff",
                "sha256": hashlib.sha256(content).hexdigest(),
                "size": len(content),
            },
        )
        assert artifact.status_code == 201, artifact.text
        upload = artifact.json()["upload"].removeprefix("/api/v1")
        assert self.agent.client.put(upload, content=content).status_code < 300
        for name, effect in (("edit", edit), ("push", push)):
            self.ids |= {f"{name} handle": effect["handle"], f"{name} gate": effect["gate"]["id"]}

    def _check(self) -> None:
        """Let Gatebook's jobs run: checks, notifications, the index, an alert and the seal."""
        # Other tests of this server may have let the jobs rest, which looks like an outage.
        JobHeartbeat.objects.filter(name__in=("stuck_checks", "gate_listener")).update(
            heartbeat_us=now_us(), paused_until_us=0
        )
        for _ in range(2):
            sweeper.sweep_stuck()
        call_command("run_alerts", stdout=io.StringIO())
        self._notify()
        indexer.update_index()
        call_command("seal_journal", stdout=io.StringIO())

    def _notify(self) -> None:
        """Send what is due, although other projects of the installation may have more of it."""
        while outbox.deliver_due():
            pass
        # What concerns one session waits a while, so that it can be one message.
        own_rows = Notification.objects.filter(channel__project=self.inbox.project, state="due")
        own_rows.update(due_at_us=now_us())
        while own_rows.exists():
            assert notifications.send_due_notifications(), list(
                own_rows.values("topic", "last_error")
            )
