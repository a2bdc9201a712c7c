"""The server is killed at work: every acknowledged command is stored exactly once, and completely."""

import hashlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.api_client import Caller, code, new_key
from tests.config.server import Server, serve
from tests.matrices import IN_FULL

pytestmark = pytest.mark.django_db  # on both databases, through the server

ROUNDS = 2 if IN_FULL else 1
CLIENTS = 6
ENOUGH = 60  # answers in a round, before it is cut short

# Reads the tables without the code of the fold. Prints what does not agree.
READ_JOURNAL = """
import json, sys
from collections import Counter, defaultdict
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from sessions.models import Artifact, Session, Task
wrong = []
entries = list(Entry.objects.order_by("position"))
if Body.objects.count() != len(entries):
    wrong.append("entries and bodies differ in number")
once = Counter((e.project, e.source, e.event_id) for e in entries)
wrong += [f"twice: {key}" for key, number in once.items() if number > 1]
facts = defaultdict(list)
for entry in entries:
    if entry.effect and entry.lane != "system" and entry.kind.startswith("effect."):
        facts[entry.effect].append(entry)
effects = {effect.id: effect for effect in Effect.objects.all()}
if facts.keys() != effects.keys():
    wrong.append(f"effects without facts or facts without effects: {len(facts.keys() ^ effects.keys())}")
attempts = defaultdict(dict)
for attempt in Attempt.objects.all():
    attempts[attempt.effect_id][attempt.number] = attempt
for identity, effect in effects.items():
    told = facts[identity]
    kinds = defaultdict(set)
    for entry in told:
        kinds[entry.attempt or 0].add(entry.kind.partition(".")[2])
    tried = sorted(number for number in kinds if number)
    if any("acknowledged" in kinds[number] for number in tried):
        state = "acknowledged"
    elif tried:
        state = "failed" if "failed" in kinds[tried[-1]] else "dispatched"
    else:
        state = "planned"
    if effect.state != state:
        wrong.append(f"{effect.effect_key} is {effect.state}, its facts say {state}")
    if sorted(attempts[identity]) != tried:
        wrong.append(f"{effect.effect_key} has attempts {sorted(attempts[identity])}, its facts say {tried}")
    planned = [entry.position for entry in told if entry.kind == "effect.planned"]
    if (effect.plan_position in planned) != bool(planned) or effect.opened_position != told[0].position:
        wrong.append(f"{effect.effect_key} points at the wrong entries")
numbers = Counter(effect.session_id for effect in effects.values())
for session in Session.objects.all():
    if session.effect_count != numbers[session.id]:
        wrong.append(f"{session.key} counts {session.effect_count} effects and has {numbers[session.id]}")
tasks = {entry.subject for entry in entries if entry.kind.startswith("task.")}
if tasks - set(Task.objects.values_list("id", flat=True)):
    wrong.append("a task is in the book only")
named = {entry.subject for entry in entries if entry.kind == "artifact.recorded"}
if named != set(Artifact.objects.values_list("id", flat=True)):
    wrong.append("artifacts and their entries differ")
print(json.dumps({"wrong": wrong, "ids": [e.event_id for e in entries if e.lane != "system"]}))
"""


@pytest.fixture(scope="module")
def server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("crash")) as server:
        yield server


@pytest.fixture(scope="module")
def token(server_process: Server) -> str:
    return server_process.token("crash")


@dataclass
class Sent:
    """One request and the status of its answer, None without an answer."""

    method: str
    path: str
    key: str
    body: Any
    status: int | None = None
    answer: dict[str, Any] = field(default_factory=dict)

    def send(self, caller: Caller) -> None:
        """Send the request, possibly again; the first answer is kept."""
        answer = self.ask(caller)
        assert answer.status_code < 500, answer.text
        if self.status is None:
            self.status, self.answer = answer.status_code, answer.json()

    def ask(self, caller: Caller) -> httpx.Response:
        if self.path == "/events":
            return caller.report(self.body)
        if self.method == "put":
            return caller.client.put(self.path, content=self.body)
        return caller.post(self.path, self.body, key=self.key)

    @property
    def ids(self) -> list[str]:
        """The ids of entries that must be in the journal after a 2xx answer."""
        if self.path == "/events":
            return [item["id"] for item in self.body]
        return [self.key] if self.method == "post" else []


class Worker(threading.Thread):
    """A client that works until the server is gone, and records its requests."""

    def __init__(
        self, server: Server, token: str, name: str, work: Callable[["Worker"], None]
    ) -> None:
        super().__init__(name=name)
        self.caller = Caller(token, address=server.url)
        self.caller.client.timeout = httpx.Timeout(30)
        self.log: list[Sent] = []
        self.work = work
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while True:
                self.work(self)
        except httpx.TransportError:
            pass  # the server is dead
        except BaseException as fault:
            self.fault = fault

    def send(self, path: str, body: Any, method: str = "post") -> dict[str, Any]:
        sent = Sent(method, path, new_key(), body)
        self.log.append(sent)
        sent.send(self.caller)
        assert sent.status in (200, 201), sent.answer
        return sent.answer


def commands(worker: Worker) -> None:
    """Plan, dispatch and acknowledge, one after the other."""
    name = new_key()[:12]
    effect = worker.send(
        "/effects",
        {"session": "commands", "effect_key": name, "tool": "t", "arguments": {"name": name}},
    )
    path = f"/effects/{effect['id']}"
    worker.send(
        f"{path}/dispatch", {"process": worker.name, "intent_digest": effect["intent_digest"]}
    )
    worker.send(f"{path}/acknowledge", {"attempt": 1, "outcome": "ok", "external_reference": name})
    if random.random() < 0.2:
        worker.send("/sessions", {"key": f"session {name}"})


def batches(worker: Worker) -> None:
    """Report all facts of effects, shuffled, some in two batches."""
    items: list[dict[str, Any]] = []
    session = f"batch {new_key()[:4]}"
    for number in range(15):
        base = {"session": session, "effect_key": f"{worker.name}-{number}-{new_key()[:6]}"}
        facts = [
            {"kind": "effect.planned", "tool": "t", "task": "T"},
            {"kind": "effect.dispatched"},
        ]
        facts += [{"kind": "effect.acknowledged", "outcome": "ok"}] if number % 3 else []
        items += [{"id": new_key(), **base, **fact} for fact in facts]
    random.shuffle(items)
    worker.send("/events", items[:20])
    worker.send("/events", items[10:])  # overlaps the first


def uploads(worker: Worker) -> None:
    """Record artifacts and send their bytes."""
    data = random.randbytes(200_000)
    about = {"session": "commands", "type": "log", "media_type": "text/plain", "size": len(data)}
    artifact = worker.send("/artifacts", {**about, "sha256": hashlib.sha256(data).hexdigest()})
    worker.send(artifact["upload"].removeprefix("/api/v1"), data, "put")


def wait_for(workers: list[Worker], answers: int) -> None:
    """Return at a random moment after so many answers have arrived."""
    until = time.monotonic() + 60
    while sum(sent.status is not None for worker in workers for sent in list(worker.log)) < answers:
        assert time.monotonic() < until, "the server hardly answers"
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.5))


def check_journal(server: Server) -> list[str]:
    """Fail where the journal is inconsistent; return the ids of all items of agents."""
    summary = json.loads(server.run(READ_JOURNAL).splitlines()[-1])
    assert summary["wrong"] == []
    ids: list[str] = summary["ids"]
    return ids


@pytest.mark.deepened
def test_what_was_acknowledged_is_stored_exactly_once(server_process: Server, token: str) -> None:
    agent = Caller(token, address=server_process.url)
    agent.session("commands")
    log: list[Sent] = []
    for round_ in range(ROUNDS):
        works = [commands, commands, commands, batches, batches, uploads]
        workers = [
            Worker(server_process, token, f"w{round_}-{n}", works[n % len(works)])
            for n in range(CLIENTS)
        ]
        for worker in workers:
            worker.start()
        wait_for(workers, ENOUGH)
        server_process.kill()
        for worker in workers:
            worker.join(60)
            assert worker.fault is None, repr(worker.fault)
            log += worker.log
        server_process.start()
    accepted = [sent for sent in log if sent.status in (200, 201)]
    unanswered = [sent for sent in log if sent.status is None]
    assert len(accepted) >= ENOUGH * ROUNDS
    assert unanswered, "no request was cut off: the test has proved nothing"
    ids = check_journal(server_process)
    stored = set(ids)
    assert len(ids) == len(stored)
    assert [item for sent in accepted for item in sent.ids if item not in stored] == []
    # An unanswered batch is stored completely or not at all.
    mentions = Counter(item for sent in log for item in sent.ids)
    for sent in unanswered:
        fresh = [item for item in sent.ids if mentions[item] == 1]
        assert len(stored & set(fresh)) in (0, len(fresh))
    # Repeat every request in another order: nothing runs twice and every answer is the same.
    random.shuffle(log)
    for sent in sorted(log, key=lambda sent: (sent.path == "/events", sent.method)):
        again = sent.ask(agent)
        if sent.status is None:
            assert again.status_code in (200, 201, 409), again.text
        elif sent.path == "/events":
            assert {result["status"] for result in again.json()["results"]} == {"duplicate"}
        elif sent.path.endswith("/dispatch"):
            assert again.status_code in (200, 409)
            assert (
                again.status_code == 409 or again.json()["remote_key"] == sent.answer["remote_key"]
            )
        else:
            assert again.status_code in (sent.status, 200), again.text
            assert again.json()["id"] == sent.answer["id"]
    after = check_journal(server_process)
    assert len(after) == len(set(after))
    assert stored <= set(after) <= stored | {item for sent in unanswered for item in sent.ids}


@pytest.mark.matrix_on_postgresql
def test_artifact_bytes_and_a_dispatch_survive_a_crash(server_process: Server, token: str) -> None:
    agent = Caller(token, address=server_process.url)
    agent.session("commands")
    kept: list[tuple[str, bytes]] = []

    def upload(worker: Worker) -> None:
        uploads(worker)
        kept.append((worker.log[-1].path, worker.log[-1].body))

    plan = {
        "session": "commands",
        "effect_key": new_key(),
        "tool": "t",
        "arguments": {"n": new_key()},
    }
    effect, key = agent.post("/effects", plan).json(), new_key()
    granted = agent.dispatch(effect, "the process before", key)
    workers = [Worker(server_process, token, f"u{n}", upload) for n in range(3)]
    for worker in workers:
        worker.start()
    wait_for(workers, 6)
    server_process.kill()
    for worker in workers:
        worker.join(60)
        assert worker.fault is None, repr(worker.fault)
    server_process.start()
    assert kept
    for path, data in kept:
        assert agent.client.get(path).content == data
    # A file named by a hash has that hash, acknowledged or not: incomplete files have other names.
    for file in Path(server_process.var / "artifacts").rglob("*"):
        if file.is_file() and not file.name.startswith(".incoming-"):
            assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name
    check_journal(server_process)
    # The dispatch is not granted again to another process.
    path = f"/effects/{effect['id']}/dispatch"
    body = {"intent_digest": effect["intent_digest"]}
    for other_key in (key, new_key()):
        refused = agent.post(path, {**body, "process": "the process after"}, key=other_key)
        assert code(refused) == (409, "ALREADY_DISPATCHED")
        assert refused.json()["effect"]["state"] == "dispatched"
    assert agent.post("/effects", plan).json()["answer"] == "ambiguous"
    # The same process, which only lost the answer, gets the answer again.
    again = agent.dispatch(effect, "the process before", key)
    assert (again["attempt"], again["remote_key"]) == (1, granted["remote_key"])
