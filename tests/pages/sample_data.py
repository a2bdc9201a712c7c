"""Write sample data for page tests: an object of each kind, through the API."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction

from accounts import tokens
from accounts.models import Agent, Project
from db.clock import now_us
from journal import erasures
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Artifact, Session, Task
from tests.api.api_client import Caller, new_key
from tests.config.row_snapshot import Kept

ORGANIZATIONS_TOKEN = Kept[str]()  # token of the installation's agent, issued before any other
REPORT = b"<svg onload=alert(1)>12 passed, 1 failed\n"
REFERENCE = "https://forge.example/web/pull/17"


@contextmanager
def connect_agent(
    agent: Agent, scope: str = "agent", kept: Kept[str] | None = None
) -> Iterator[Caller]:
    """Return an API client for the agent, inside the test's transaction.

    `kept` keeps the agent's token for later tests.
    """
    from config.wsgi import application

    def issue() -> str:
        with transaction.atomic():
            return tokens.issue_token(agent, scope=scope, expires_in=None, actor="tests")

    token = kept.again(issue) if kept else issue()
    caller = Caller(token, app=application)
    caller.client.event_hooks = {"request": [_keep_connection]}
    yield caller
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)


def _keep_connection(_request: object) -> None:
    """Keep Django from closing the connection that holds the test's transaction.

    Runs before each request, because Django's test client connects the signal again.
    """
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)


@dataclass
class SampleIds:
    """Ids of the written objects, with effects by their state."""

    session: UUID
    child: UUID
    task: UUID
    artifact: UUID
    unstored: UUID
    effects: dict[str, UUID] = field(default_factory=dict)


def fill(agent: Caller, words: str = "", key: str = "deploy-web") -> SampleIds:
    """Write a session with effects in every state.

    `words` is appended to every free-text field and name.
    """

    def say(text: str, most: int = 200) -> str:
        return f"{text}{words}"[:most]

    opened = agent.session(
        say(key),
        title=say("Deploy the web shop"),
        repository=say("web"),
        branch=say("hotfix/rounding"),
        mode="leased",
        labels={say("ticket", 64): say("INC-204")},
    )
    child = agent.session(say(f"{key}/agent-1"), title=say("Read the logs"), parent=opened["id"])
    parent = done(
        agent.post(
            f"/sessions/{opened['id']}/tasks",
            {"key": say("release"), "title": say("Release 2.8.1")},
        )
    )
    fields = {
        "key": say("notify"),
        "title": say("Notify customers"),
        "parent": parent["id"],
        "worker": say("w-2", 100),
    }
    task = done(agent.post(f"/sessions/{opened['id']}/tasks", fields))
    items = [
        {"key": say(f"customer-{n}"), "state": state}
        for n, state in enumerate(["done", "done", "failed", "pending"])
    ]
    done(agent.post(f"/tasks/{task['id']}/items", {"items": items}))
    sample = SampleIds(
        UUID(opened["id"]), UUID(child["id"]), UUID(task["id"]), UUID(int=0), UUID(int=0)
    )
    _effects(agent, sample, say)
    sample.artifact, sample.unstored = _artifacts(agent, sample, say)
    return sample


def _effects(agent: Caller, sample: SampleIds, say: Any) -> None:
    session, target = (
        str(sample.session),
        {"repository": say("web"), "ref": "main", "environment": say("prod", 64)},
    )

    def plan(name: str, tool: str, arguments: Any, **more: Any) -> dict[str, Any]:
        planned = agent.plan(say(name), session, tool=say(tool, 100), arguments=arguments, **more)
        sample.effects[name] = UUID(planned["id"])
        return planned

    plan(
        "planned",
        "deploy.run",
        {"environment": say("staging")},
        target=target,
        task=str(sample.task),
        why=say("next"),
    )
    agent.dispatch(
        plan(
            "dispatched",
            "mail.send",
            {"recipients": 412, "subject": say("Your invoice")},
            turn=say("7"),
        )
    )
    ok = plan(
        "ok",
        "git.push",
        {"command": say("git push origin main")},
        target={**target, "resource": say("web@main")},
    )
    agent.dispatch(ok)
    agent.acknowledge(
        ok, external_reference=say(REFERENCE), result={"text": say("pushed"), "sha": "9d02a77"}
    )
    for outcome in ("error", "unknown"):
        attempted = plan(
            outcome, "test.run", {"command": say(f"pytest -q {outcome}"), "timeout": 30}
        )
        agent.dispatch(attempted)
        agent.acknowledge(attempted, outcome=outcome, result=say("exit 3\nTraceback"))
    for reason in ("rejected", "timeout"):
        attempted = plan(reason, "deploy.run", [say("a list"), 1, None, {"reason": reason}])
        agent.dispatch(attempted)
        agent.fail(attempted, reason)
    again = agent.plan(
        say("rejected"),
        session,
        tool=say("deploy.run", 100),
        arguments=[say("a list"), 1, None, {"reason": "rejected"}],
    )
    agent.dispatch(again)
    agent.fail(again, "rejected", 2)
    undone = plan("compensated", "issue.label", {"label": say("stale"), "issue": 1177})
    agent.dispatch(undone)
    agent.acknowledge(undone)
    undoing = done(
        agent.post(
            f"/effects/{undone['id']}/compensate",
            {
                "effect_key": say("undoing"),
                "tool": say("issue.unlabel", 100),
                "arguments": {"issue": 1177},
            },
        )
    )
    sample.effects["undoing"] = UUID(undoing["id"])
    agent.dispatch(undoing)
    agent.acknowledge(undoing)
    gone = plan(
        "superseded",
        "mail.send",
        {"recipients": 1, "subject": say("draft")},
        parent_effect=ok["id"],
    )
    done(agent.post(f"/effects/{gone['id']}/supersede"))
    stub = {
        "id": new_key(),
        "kind": "effect.acknowledged",
        "session": session,
        "effect_key": say("stub"),
        "outcome": "ok",
    }
    odd = {
        "id": new_key(),
        "kind": "effect.sniffed",
        "session": session,
        "effect_key": say("ok"),
        "source": say("probe", 160),
    }
    report = agent.report([stub, odd])
    assert report.status_code == 200, report.text


def _artifacts(agent: Caller, sample: SampleIds, say: Any) -> tuple[UUID, UUID]:
    fields = {
        "session": str(sample.session),
        "effect": str(sample.effects["error"]),
        "type": say("log", 64),
        "name": say("report.svg"),
        "sha256": hashlib.sha256(REPORT).hexdigest(),
        "size": len(REPORT),
        "media_type": "image/svg+xml",
    }
    stored = done(agent.post("/artifacts", fields))
    sent = agent.client.put(f"/artifacts/{stored['id']}/bytes", content=REPORT)
    assert sent.status_code == 200, sent.text
    linked = done(
        agent.post(
            "/artifacts", {**fields, "sha256": "ab" * 32, "uri": say("javascript:alert(1)//")}
        )
    )
    return UUID(stored["id"]), UUID(linked["id"])


def permission(agent: Caller, sample: SampleIds, words: str = "") -> None:
    """Write decisions, handoffs, a checkpoint and facts into the session.

    `words` is appended to every text.
    """
    path = f"/sessions/{sample.session}"

    def say(text: str) -> str:
        return f"{text}{words}"[:160]

    decision = done(
        agent.post(
            f"{path}/decisions",
            {
                "key": say("way"),
                "choice": say("deploy first"),
                "rationale": say("it can be undone"),
                "effect_key": "ok",
            },
        )
    )
    done(
        agent.post(
            f"/decisions/{decision['id']}/conclude", {"status": "done", "outcome": say("deployed")}
        )
    )
    done(agent.post(f"{path}/decisions", {"key": say("next"), "choice": say("send the invoices")}))
    sections = {
        name: [say(name), say("and more")] for name in ("in_progress", "decided", "needs_attention")
    }
    waits = [
        {"kind": "effect", "ref": str(sample.effects["dispatched"]), "text": say("the mail")},
        {"kind": "text", "text": say("Ann")},
    ]
    first = done(agent.post(f"{path}/handoffs", {**sections, "waits_on": waits}))
    done(agent.post(f"/handoffs/{first['id']}/accept"))
    done(agent.post(f"{path}/handoffs", {**sections, "can_wait": [say("the report") * 20] * 20}))
    done(
        agent.post(
            f"{path}/checkpoints",
            {
                "summary": say("two of three"),
                "cursor": say("batch-2"),
                "pins": {"schema": say("8")},
            },
        )
    )
    for source in ("git", "CI"):
        done(
            agent.post(
                f"{path}/facts", {"name": say("head"), "value": say(source), "source": say(source)}
            )
        )


def done(answer: Any) -> dict[str, Any]:
    """Return the JSON of a successful answer."""
    assert answer.status_code in (200, 201, 202), answer.text
    content: dict[str, Any] = answer.json()
    return content


def pass_deadline(effect: UUID) -> None:
    """Move the deadline of a dispatched effect into the past."""
    Effect.objects.filter(id=effect).update(deadline_us=now_us() - 1_000_000)


def erase_plan(effect: UUID) -> int:
    """Erase the body of an effect's plan and return its position."""
    row = Effect.objects.get(id=effect)
    assert row.plan_position is not None
    with transaction.atomic():
        erasures.erase_body(
            row.project_id,
            row.plan_position,
            reason="ticket 88",
            actor="tests",
            now_us=now_us(),
        )
    return row.plan_position


def many(agent: Caller, session: str, number: int, start: int = 0, answered: int = 0) -> None:
    """Report `number` plans of a session, and an acknowledgement of the first `answered` of them."""
    for first in range(start, start + number, 1000):
        last = min(first + 1000, start + number)
        plans = [
            {
                "id": f"p-{session}-{n}",
                "kind": "effect.planned",
                "session": session,
                "effect_key": f"e-{n}",
                "tool": f"tool.{n % 7}",
                "arguments": {
                    "command": f"make step-{n} VERBOSE=1 --jobs 8 --keep-going in packages/web",
                    "n": n,
                },
                "occurred_us": 1_700_000_000_000_000 + n,
            }
            for n in range(first, last)
        ]
        assert agent.report(plans).status_code == 200
    answers = [
        {
            "id": f"a-{session}-{n}",
            "kind": "effect.acknowledged",
            "session": session,
            "effect_key": f"e-{n}",
            "outcome": ("ok", "error", "unknown")[n % 3],
            "external_reference": f"run-{n}",
        }
        for n in range(start + number - answered, start + number)
    ]
    for first in range(0, len(answers), 1000):
        assert agent.report(answers[first : first + 1000]).status_code == 200


def everything(project: Project) -> dict[str, list[Any]]:
    """Return every id of a project's reading pages by the URL argument's name."""
    facts = Entry.objects.filter(project=project.id, effect__isnull=False)
    return {
        "session": list(Session.objects.filter(project=project).values_list("id", flat=True)),
        "task": list(Task.objects.filter(project=project).values_list("id", flat=True)),
        "effect": list(Effect.objects.filter(project=project).values_list("id", flat=True)),
        "artifact": list(Artifact.objects.filter(project=project).values_list("id", flat=True)),
        "position": list(facts.values_list("position", flat=True)),
    }
