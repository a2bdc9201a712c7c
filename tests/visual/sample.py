"""The sample data of the pictures, and the pages that they show."""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.visual.installation import (
    AgentClient,
    Clock,
    PersonClient,
    run_command,
    run_command_with_file,
    url_of,
)

TOOLS = """
tools:
  file.read: {class: read_only, deadline_s: 30, description: Reads a file of the working copy.}
  file.edit: {class: idempotent, reversibility: reversible, description: Writes a whole file.}
  git.commit: {class: transactional, reversibility: reversible, description: Records a commit.}
  git.push:
    class: probeable
    reversibility: compensable
    deadline_s: 120
    description: Moves a branch of a remote; the remote reports its position.
  deploy.run:
    class: compensable
    reversibility: compensable
    telling: [version, share]
    fields: {version: version}
    description: Deploys a version.
  issue.close:
    class: idempotent
    reversibility: reversible
    fields: {issue: issue}
    description: Closes an issue.
  issue.comment: {class: idempotency_key, reversibility: compensable, key_window_s: 86400}
  test.run: {class: read_only, description: Runs the tests.}
  mail.send:
    class: idempotency_key
    reversibility: irreversible
    telling: [subject, recipients]
    raises: [{path: recipients, gt: 100, risk: critical}]
    description: Sends e-mail to customers.
"""
RULES = """
name: payments
hours: {zone: Europe/Berlin, days: [mon, tue, wed, thu, fri], from: "08:00", to: "18:00"}
rules:
  - id: push-to-main
    title: A push to a production branch
    match: {tools: [git.push], ref_classes: [production]}
    outcome: require
    require: {minimum: 1, rationale: {on: always, minimum_characters: 10}, decide_within: 1h}
  - id: deploy
    title: A deployment
    match: {tools: [deploy.run]}
    outcome: require
    require: {minimum: 2, teams: [leads], decide_within: 2h}
  - id: issues
    title: Closing issues
    match: {tools: [issue.close]}
    outcome: require
    require: {decide_within: 8h}
  - id: mails
    title: Mail to customers
    match: {tools: [mail.send]}
    outcome: require
    require: {decide_within: 24h}
  - id: no-tags
    title: Tags are made by people
    match: {tools: [git.tag]}
    outcome: deny
  - id: work
    title: Reading, editing, testing and committing in the working copy
    match: {tools: [file.*, test.run, git.commit, git.push, issue.comment]}
    outcome: allow
"""
REPORT = b"12 passed, 1 failed\n"
TARGET = {"repository": "payments-api", "ref": "main", "environment": "production"}
ROLES = {
    "rita": "reviewer",
    "sam": "reviewer",
    "alice": "operator",
    "vera": "viewer",
    "dan": "administrator",
}
LONG_COMMAND = (
    "python -m payments.reconcile --ledger production --from 2026-01-01 --until 2026-02-20 "
    + " ".join(f"--account {4000 + n}" for n in range(8))
)
EDIT = {
    "file_path": "payments/rounding.py",
    "old_string": "".join(f"line {n} of the old text\n" for n in range(40)),
    "new_string": "".join(f"line {n} of the {'new' if n % 3 else 'old'} text\n" for n in range(50)),
    "replace_all": False,
}
PUSH = {
    "command": "git push --force-with-lease=main:4be1c9e origin 9d02a77:main",
    "commits": [{"sha": "9d02a77", "title": "squash: settle to even", "author": "deploy-7"}],
    "removed_commits": [
        {"sha": "4be1c9e", "title": "fix rounding", "author": "bob"},
        {"sha": "81f0a3d", "title": "drop legacy tolerance", "author": "bob"},
    ],
}


class PageAddress(NamedTuple):
    """A page to picture: its name, who sees it, and its URL."""

    name: str
    person: str
    url: str
    fields: dict[str, Any] | None = None  # of a page that answers a form


@dataclass
class Sample:
    """The sample data: ids by name, and the people's browsers."""

    clock: Clock
    agent: AgentClient
    people: dict[str, PersonClient] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    effects: dict[str, dict[str, Any]] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    def plan(self, session: str, name: str, tool: str, arguments: Any, **more: Any) -> Any:
        """Plan an effect and keep the answer under `name`."""
        planned = self.agent.plan(self.sessions[session], name, tool, arguments, **more)
        self.effects[name] = planned
        return planned

    def run(self, session: str, name: str, tool: str, arguments: Any, **more: Any) -> Any:
        """Plan an effect, dispatch it and acknowledge it."""
        result = more.pop("acknowledged", {})
        planned = self.plan(session, name, tool, arguments, **more)
        self.agent.dispatch(planned)
        self.agent.acknowledge(planned, **result)
        return planned

    def gate_of(self, name: str) -> str:
        """Return the id of the gate that an effect waits for."""
        return str(self.effects[name]["gate"]["id"])

    def vote(self, person: str, name: str, answer: str, reason: str) -> None:
        """Answer a request as a person, with all confirmations."""
        url = url_of("gate", self.gate_of(name))
        client = self.people[person]
        client.confirm(client.submit(url, ("answer", answer), reason=reason))


def furnish(clock: Clock) -> Sample:
    """Write the sample data: people, policies, two days of work, requests and an incident."""
    admin = PersonClient(clock, "admin")
    token = run_command("issue_token", "--agent", "deploy-7").strip()
    sample = Sample(clock, AgentClient(clock, token), {"admin": admin})
    _add_people(sample)
    run_command_with_file("load_tools", TOOLS)
    run_command_with_file("load_policies", RULES, "--activate", "enforce")
    for write in (
        _write_past_release,
        _write_release,
        _write_working_state,
        _write_requests,
        _write_stuck_sessions,
        _write_investigation,
    ):
        write(sample)
    return sample


def _add_people(sample: Sample) -> None:
    admin = sample.people["admin"]
    for name, role in ROLES.items():
        admin.submit(url_of("people"), username=name, role=role)
        person = sample.people[name] = PersonClient(sample.clock, name)
        if 'value="accept"' in person.load("/"):
            person.submit("/", ("do", "accept"))
    admin.submit(url_of("teams"), name="leads")
    for name in ("rita", "sam"):
        admin.submit(url_of("teams"), member=name)
    admin.submit(url_of("notifications"), kind="email", target="payments@corp.example")
    admin.submit(url_of("notifications"), kind="webhook", target="https://hooks.example/gatebook")


def _write_past_release(sample: Sample) -> None:
    """Write a session of the day before, which succeeded, for comparisons and history."""
    agent = sample.agent
    session = agent.open_session(
        "release-2.8.0", title="Release 2.8.0", repository="payments-api", branch="main"
    )
    sample.sessions["past"] = session["id"]
    for number in range(4):
        sample.run("past", f"past-edit-{number}", "file.edit", {"path": f"payments/{number}.py"})
    sample.run("past", "past-test", "test.run", {"command": "pytest -q"})
    sample.plan("past", "past-close", "issue.close", {"issue": 390}, target=TARGET)
    sample.vote("rita", "past-close", "approve", "Fixed by the release.")
    closed = sample.effects["past-close"]
    agent.dispatch(closed)
    agent.acknowledge(closed)
    sample.plan("past", "past-push", "git.push", {"command": "git push -f"}, target=TARGET)
    sample.vote("sam", "past-push", "deny", "Not on a Monday evening.")
    sample.plan("past", "past-main", "git.push", {"command": "git push"}, target=TARGET)
    sample.clock.advance(hours=3)
    run_command("expire_gates")
    agent.post(f"/sessions/{session['id']}/end", {"status": "completed"})
    sample.clock.advance(hours=18)


def _write_release(sample: Sample) -> None:
    """Write a session with effects in every state."""
    agent = sample.agent
    opened = agent.open_session(
        "release-2.8.1",
        title="Release 2.8.1",
        repository="payments-api",
        branch="main",
        mode="leased",
        on_behalf_of="vera",
        labels={"ticket": "INC-204"},
    )
    sample.sessions["release"] = opened["id"]
    child = agent.open_session("release-2.8.1/logs", title="Read the logs", parent=opened["id"])
    sample.sessions["child"] = child["id"]
    path = f"/sessions/{opened['id']}/tasks"
    parent = agent.post(path, {"key": "release", "title": "Release 2.8.1"})
    fields = {"key": "notify", "title": "Notify customers", "parent": parent["id"]}
    task = agent.post(path, fields | {"worker": "worker-2"})
    sample.tasks |= {"release": parent["id"], "notify": task["id"]}
    states = ["done", "done", "failed", "pending"]
    items = [{"key": f"customer-{n}", "state": state} for n, state in enumerate(states)]
    agent.post(f"/tasks/{task['id']}/items", {"items": items})
    sample.run("release", "read", "file.read", {"path": "payments/rounding.py"})
    sample.run("release", "edit", "file.edit", EDIT, task=parent["id"], why="Round half to even.")
    for outcome in ("error", "unknown"):
        result = {"outcome": outcome, "result": "exit 3\nTraceback"}
        arguments = {"command": f"pytest -q {outcome}", "timeout": 30}
        sample.run("release", outcome, "test.run", arguments, acknowledged=result)
    sample.run(
        "release",
        "ok",
        "git.push",
        {"command": "git push origin hotfix/rounding"},
        target={**TARGET, "ref": "hotfix/rounding", "resource": "payments-api@hotfix/rounding"},
        acknowledged={
            "external_reference": "https://forge.example/payments/pull/17",
            "result": {"text": "pushed", "sha": "9d02a77"},
        },
    )
    for reason in ("rejected", "timeout"):
        agent.dispatch(sample.plan("release", reason, "git.commit", ["a list", 1, None, reason]))
        agent.fail(sample.effects[reason], reason)
    again = agent.plan(opened["id"], "rejected", "git.commit", ["a list", 1, None, "rejected"])
    agent.dispatch(again)
    agent.fail(again, "rejected", 2)
    comment = {"issue": 1177, "text": "Rounding is fixed in 2.8.1."}
    compensated = sample.run("release", "compensated", "issue.comment", comment)
    undoing = {"effect_key": "undoing", "tool": "issue.comment", "arguments": {"issue": 1177}}
    sample.effects["undoing"] = agent.post(f"/effects/{compensated['id']}/compensate", undoing)
    agent.dispatch(sample.effects["undoing"])
    agent.acknowledge(sample.effects["undoing"])
    gone = sample.plan("release", "superseded", "file.edit", {"path": "README"})
    agent.post(f"/effects/{gone['id']}/supersede")
    for name in ("dispatched", "lost"):
        pushed = {"command": f"git push origin {name}"}
        target = {**TARGET, "ref": f"hotfix/{name}"}
        agent.dispatch(sample.plan("release", name, "git.push", pushed, target=target))
    sample.plan("release", "planned", "file.edit", {"path": "CHANGELOG"}, task=task["id"])
    sample.plan("release", "tagged", "git.tag", {"tag": "v2.8.1"}, target=TARGET)
    fields = {
        "session": opened["id"],
        "effect": sample.effects["error"]["id"],
        "type": "log",
        "name": "report.txt",
        "sha256": hashlib.sha256(REPORT).hexdigest(),
        "size": len(REPORT),
        "media_type": "text/plain",
    }
    stored = agent.post("/artifacts", fields)
    agent.put_bytes(f"/artifacts/{stored['id']}/bytes", REPORT)
    agent.post("/artifacts", fields | {"sha256": "ab" * 32, "uri": "https://ci.example/17"})


def _write_working_state(sample: Sample) -> None:
    """Write what workers leave for each other: decisions, handoffs, checkpoints, facts, messages."""
    agent, path = sample.agent, f"/sessions/{sample.sessions['release']}"
    decision = {"key": "way", "choice": "Deploy first", "rationale": "It can be undone."}
    first = agent.post(f"{path}/decisions", decision | {"effect_key": "ok"})
    done = {"status": "done", "outcome": "Deployed."}
    agent.post(f"/decisions/{first['id']}/conclude", done)
    agent.post(f"{path}/decisions", {"key": "next", "choice": "Send the invoices"})
    sections = {
        "in_progress": ["The push to main"],
        "decided": ["Deploy first", "Invoices afterwards"],
        "needs_attention": ["Two pushes without an answer"],
    }
    waits = [
        {"kind": "effect", "ref": sample.effects["dispatched"]["id"], "text": "the push"},
        {"kind": "text", "text": "Ann"},
    ]
    handoff = agent.post(f"{path}/handoffs", {**sections, "waits_on": waits})
    agent.post(f"/handoffs/{handoff['id']}/accept")
    agent.post(f"{path}/handoffs", {**sections, "can_wait": ["The report"]})
    checkpoint = {"summary": "Two of three are done", "cursor": "batch-2", "pins": {"schema": "8"}}
    agent.post(f"{path}/checkpoints", checkpoint)
    for source in ("git", "CI"):
        agent.post(f"{path}/facts", {"name": "head", "value": f"of {source}", "source": source})
    for name, words in (("send_to_session", "Wait for the push."), ("send_to_all", "Freeze at 5.")):
        url = (
            url_of("session_messages", sample.sessions["release"])
            if name == "send_to_session"
            else url_of("shared_messages")
        )
        text = sample.people["alice"].load(url)
        if 'name="text"' in text:
            sample.people["alice"].submit(url, text=words)


def _write_requests(sample: Sample) -> None:
    """Ask for approvals: waiting, decided, exempted and dangerous ones."""
    sample.plan(
        "release",
        "push",
        "git.push",
        PUSH,
        target=TARGET,
        preconditions={"git.head": "4be1c9e"},
        why="Squash so that history is clean before release. Bob agreed on the call.",
    )
    sample.plan(
        "release",
        "mail",
        "mail.send",
        {"subject": "Your invoice", "recipients": 412},
        target={"environment": "production"},
        why="They asked for it.",
    )
    deployed = {"version": "4.18.0", "share": "10 %"}
    sample.plan("release", "deploy", "deploy.run", deployed, target=TARGET)
    for number in (411, 418, 502):
        issue, target = {"issue": number}, {"repository": "web"}
        sample.plan("release", f"close-{number}", "issue.close", issue, target=target)
    sample.plan("release", "infra", "infra.apply", {"plan": "staging-to-production"})
    sample.plan("release", "long", "git.push", {"command": LONG_COMMAND}, target=TARGET)
    hidden = {"command": "git push origin \u202eniam:nigiro\u202c main"}
    sample.plan("release", "hidden", "git.push", hidden, target=TARGET, why="Approved\u200b.")
    sample.vote("rita", "deploy", "approve", "Ten per cent is safe enough.")
    sample.vote("sam", "long", "deny", "Reconcile one account at a time.")
    dan = sample.people["dan"]
    granted = dan.submit(
        url_of("grant_exemption"),
        tool="issue.close",
        repository="payments-api",
        hours="4",
        reason="Cleaning up stale issues of the release this morning.",
    )
    dan.confirm_answer(granted)
    run_command("send_notifications")


def _write_stuck_sessions(sample: Sample) -> None:
    """Advance the clock, so that unanswered effects and a lease without heartbeats show up."""
    agent = sample.agent
    looping = agent.open_session("triage-12", title="Triage open issues", repository="web")
    sample.sessions["looping"] = looping["id"]
    for number in range(7):
        result = {"outcome": "error", "result": "exit 1"}
        sample.run(
            "looping", f"loop-{number}", "test.run", {"command": "make test"}, acknowledged=result
        )
    stopped = agent.open_session("refactor-3", title="Refactor the ledger", mode="leased")
    sample.sessions["stopped"] = stopped["id"]
    for session in (sample.sessions["release"], stopped["id"]):
        lease = agent.post("/leases", {"session": session, "process": "worker-9"})
        heartbeat = {"lease": lease["id"], "epoch": lease["epoch"]}
        agent.post("/heartbeats", {"heartbeats": [heartbeat]})
    sample.people["sam"].submit(
        f"{url_of('stop')}?scope=session&subject={stopped['id'].replace('-', '')}",
        reason="It rewrites files of another team.",
    )
    sample.clock.advance(minutes=16)
    for _ in range(2):
        run_command("sweep_stuck")
        sample.clock.advance(seconds=30)


def _write_investigation(sample: Sample) -> None:
    """Write an incident, saved queries and an export."""
    run_command("update_search_index")
    dan = sample.people["dan"]
    opened = dan.submit(
        url_of("open_incident"),
        title="Customers were charged twice",
        thing=sample.effects["ok"]["id"],
        reason="The push changed the rounding.",
    )
    sample.urls["incident"] = opened.partition("?")[0]
    for name, why in (("error", "The tests failed before."), ("dispatched", "No answer yet.")):
        dan.submit(
            url_of("add_to_incident"),
            thing=sample.effects[name]["id"],
            reason=why,
            incident=opened.strip("/").split("/")[1],
        )
    for name, query in (
        ("Pushes to production", "tool:git.push ref_class:production"),
        ("Failed this week", "state:failed since:7d"),
    ):
        dan.submit(url_of("saved_queries"), name=name, q=query, shared="1")
    sample.urls["export"] = dan.submit(f"{url_of('export')}?q=tool:git.push")
    dan.submit(url_of("erasures"), reason="CASE-7: keep the release.", words="rounding")
    sample.urls["erasure"] = dan.submit(
        url_of("new_erasure"), subject="words", words="Invoices", reason="TICKET-204"
    )
    for job in (
        *("run_exports", "expire_gates", "send_notifications", "sweep_stuck"),
        *("run_erasures", "seal_journal"),
    ):
        run_command(job)


def list_pages(sample: Sample) -> list[PageAddress]:
    """Return every page of the pictures."""
    pages: list[PageAddress] = []

    def add(name: str, person: str, url: str, query: str = "") -> None:
        pages.append(PageAddress(name, person, url + (f"?{query}" if query else "")))

    def add_search(name: str, query: str, more: str = "") -> None:
        add(name, "rita", url_of("search"), f"q={quote(query)}{more}")

    for person in sample.people.values():
        person.sign_in()
    release = sample.sessions["release"]
    effect = {name: planned["id"] for name, planned in sample.effects.items()}
    add("sign-in", "", url_of("sign_in"))
    add("overview", "rita", "/")
    add("overview-table", "vera", "/", "view=table")
    for state in ("pending", "mine", "decided", "expired"):
        add(f"inbox-{state}", "rita", url_of("inbox"), f"state={state}")
    add("inbox-with-request", "rita", url_of("inbox"), f"open={sample.gate_of('push')}")
    add("inbox-viewer", "vera", url_of("inbox"))
    for name in ("push", "mail", "deploy", "hidden", "close-411"):
        add(f"gate-{name}", "sam", url_of("gate", sample.gate_of(name)))
    for name, gate in (
        ("voted", "deploy"),
        ("denied", "long"),
        ("approved", "past-close"),
        ("expired", "past-main"),
    ):
        add(f"gate-{name}", "rita", url_of("gate", sample.gate_of(gate)))
    add("gate-viewer", "vera", url_of("gate", sample.gate_of("push")))
    add("gate-arguments", "rita", url_of("gate_arguments", sample.gate_of("push")))
    add("gate-as-of", "rita", url_of("gate_history", sample.gate_of("deploy")), "asof=17m")
    for name, button, gate in (("confirm", "approve", "push"), ("confirm-deny", "deny", "mail")):
        url = sample.people["dan"].submit(
            url_of("gate", sample.gate_of(gate)),
            ("answer", button),
            reason="Bob agreed, and the tests pass.",
        )
        add(f"gate-{name}", "dan", url)
    batch = [sample.gate_of(f"close-{number}") for number in (411, 418, 502)]
    pages.append(PageAddress("batch", "sam", url_of("batch"), {"gate": batch}))
    add("policies", "dan", url_of("policies"))
    add("policy-draft", "dan", url_of("policy_draft"))
    policies = sample.people["dan"].load(url_of("policies"))
    policy_set = re.search(r'"(/approvals/policies/sets/[^"]+)"', policies)
    assert policy_set
    add("policy-set", "dan", policy_set[1])
    add("policy-activate", "dan", f"{policy_set[1]}activate/")
    add("exemptions", "rita", url_of("exemptions"))
    add("exemption-grant", "dan", url_of("grant_exemption"))
    exemptions = sample.people["dan"].load(url_of("exemptions"))
    exemption = re.search(r'"(/approvals/exemptions/[0-9a-f-]{36}/history/)[^"]*"', exemptions)
    if exemption:
        add("exemption", "dan", exemption[1])
    add("stops", "rita", url_of("stops"))
    add("stop-project", "rita", url_of("stop"), "scope=project")
    add("stop-session", "rita", url_of("stop"), f"scope=session&subject={release.replace('-', '')}")
    stops = sample.people["rita"].load(url_of("stops"))
    lift = re.search(r'"([^"]+/lift/)"', stops)
    assert lift
    add("stop-lift", "rita", lift[1])

    add("sessions", "rita", url_of("sessions"))
    add("sessions-none", "rita", url_of("sessions"), "status=failed&text=none")
    add("session", "rita", url_of("session", release))
    add("session-ended", "rita", url_of("session", sample.sessions["past"]))
    add("session-stopped", "rita", url_of("session", sample.sessions["stopped"]))
    add("session-as-of", "rita", url_of("session", release), "asof=17m")
    timeline = url_of("session_timeline", release)
    for name, query in (
        ("timeline", ""),
        ("timeline-lanes", "view=lanes"),
        ("timeline-compact", "view=compact"),
        ("timeline-clocks", "clocks=three"),
        ("timeline-filtered", "state=unknown&live=off"),
        ("timeline-as-of", "asof=17m&view=lanes"),
    ):
        add(name, "rita", timeline, query)
    for name in ("resume", "tasks", "decisions", "handoffs", "state", "artifacts"):
        add(f"session-{name}", "rita", url_of(f"session_{name}", release))
    add("session-messages", "alice", url_of("session_messages", release))
    add("session-why", "rita", url_of("session_why", release))
    add("compare-choose", "rita", url_of("session_compare", release))
    past = sample.sessions["past"]
    add("compare", "rita", url_of("session_diff", release, past))
    add("compare-all", "rita", url_of("session_diff", release, past), "all=1")
    add("task", "rita", url_of("task", sample.tasks["notify"]))
    for name in ("ok", "rejected", "dispatched", "compensated", "superseded", "push", "tagged"):
        add(f"effect-{name}", "rita", url_of("effect", effect[name]))
    add("effect-as-of", "rita", url_of("effect", effect["ok"]), "asof=17m")
    add("chain", "rita", url_of("effect_chain", effect["compensated"]))
    add("chain-lanes", "rita", url_of("effect_chain", effect["compensated"]), "view=lanes")
    add("resolve", "alice", url_of("resolve", effect["dispatched"]))
    confirm = sample.people["alice"].submit(
        url_of("resolve", effect["lost"]),
        answer="not_happened",
        rationale="The remote has no such branch, and its log shows no push.",
        insists="1",
    )
    add("resolve-confirm", "alice", confirm)

    add("search", "rita", url_of("search"))
    add_search("search-effects", "tool:git.push ref_class:production")
    add_search("search-facets", "state:failed", "&facets=1")
    add_search("search-words", "rounding")
    for entity in ("session", "gate", "event", "exemption"):
        add_search(f"search-{entity}s", entity)
    add_search("search-groups", "since:7d | group tool")
    add_search("search-none", "tool:nothing.here")
    add_search("search-error", "tool:git.push state:odd")
    add("search-help", "rita", url_of("search_language"))
    add("questions", "rita", url_of("questions"))
    add("permalink", "rita", url_of("search_link"), "q=tool:git.push+since:7d")
    add("jump", "rita", url_of("search_jump"), "id=nothing")
    add("saved-queries", "dan", url_of("saved_queries"))
    saved = sample.people["dan"].load(url_of("saved_queries"))
    saved_query = re.search(r'"([^"]+/saved/[0-9a-f-]{36}/)"', saved)
    assert saved_query
    add("saved-query", "dan", saved_query[1])
    add("export", "dan", url_of("export"), "q=tool:git.push")
    add("export-job", "dan", sample.urls["export"])
    add("incidents", "dan", url_of("incidents"))
    add("incident", "dan", sample.urls["incident"])
    add("incident-table", "dan", sample.urls["incident"], "view=table")
    add("incident-open", "dan", url_of("open_incident"))
    add("incident-add", "dan", url_of("add_to_incident"), f"thing={effect['timeout']}")
    add("journal", "dan", url_of("journal"))
    add("journal-entry", "dan", url_of("journal"), "at=40")
    add("proofs", "rita", url_of("proofs"))
    add("proof-of-entry", "rita", url_of("proof", 40))
    add("journal-erase", "dan", url_of("erase_body", 40))
    add("erasures", "dan", url_of("erasures"))
    add("erasure-new", "dan", url_of("new_erasure"))
    add("erasure", "admin", sample.urls["erasure"])

    add("stuck", "rita", url_of("stuck"))
    add("stuck-mine", "rita", url_of("stuck"), "mine=1")
    board = sample.people["rita"].load(url_of("stuck")).replace("&amp;", "&")
    for do in ("snooze", "assign", "release"):
        action = re.search(rf'"(/stuck/[^"]+\?do={do})"', board)
        if action:
            add(f"stuck-{do}", "rita", action[1])

    for name in ("appearance", "shortcuts", "review_settings", "password"):
        add(f"settings-{name}", "rita", url_of(name))
    for name in ("people", "teams", "tokens", "repositories", "notifications"):
        add(f"settings-{name}", "admin", url_of(name))
    for name, listing, pattern in (
        ("agent", "tokens", r'"(/agents/[^"]+/)"'),
        ("settings-repository", "repositories", r'"(/settings/repositories/[^"]+/)"'),
        ("settings-reset-password", "people", r'"(/settings/people/[^"]+/password/)"'),
        ("settings-remove-person", "people", r'"(/settings/people/[^"]+/remove/)"'),
        ("settings-delete-team", "teams", r'"(/settings/teams/[^"]+/dissolve/)"'),
        ("settings-channel", "notifications", r'"(/settings/[a-z]+/[0-9a-f-]{36}/)"'),
    ):
        link = re.search(pattern, sample.people["admin"].load(url_of(listing)))
        if link:
            add(name, "admin", link[1])
    add("lacks-role", "vera", url_of("people"))
    add("not-found", "rita", url_of("session", "00000000-0000-7000-8000-000000000000"))
    add("messages", "alice", url_of("shared_messages"))
    add("help", "rita", url_of("help"))
    add("api", "rita", url_of("api"))
    add("tools", "rita", url_of("tools"))
    add("code-hosts", "rita", url_of("code_hosts"))
    add("verdicts", "rita", url_of("verdicts"))
    return pages
