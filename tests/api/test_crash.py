"""The server is killed in the middle of its work: what it had said is so, exactly once, and nothing
is half so."""

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

pytestmark = pytest.mark.django_db  # on both databases: they are reached through the server

ROUNDS = 2
CLIENTS = 6
ENOUGH = 60  # answers in a round, before it is cut short

# Looks behind the server, with eyes of its own: nothing here comes from the fold. Prints what does
# not agree.
BOOK = """
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
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("crash")) as server:
        yield server


@pytest.fixture(scope="module")
def token(house: Server) -> str:
    return house.token("crash")


@dataclass
class Sent:
    """One request, and what was heard of it: None when nothing was."""

    method: str
    path: str
    key: str
    body: Any
    heard: int | None = None
    answer: dict[str, Any] = field(default_factory=dict)

    def send(self, caller: Caller) -> None:
        """Send it, again too; what was heard first stays."""
        answer = self.ask(caller)
        assert answer.status_code < 500, answer.text
        if self.heard is None:
            self.heard, self.answer = answer.status_code, answer.json()

    def ask(self, caller: Caller) -> httpx.Response:
        if self.path == "/events":
            return caller.report(self.body)
        if self.method == "put":
            return caller.client.put(self.path, content=self.body)
        return caller.post(self.path, self.body, key=self.key)

    @property
    def ids(self) -> list[str]:
        """The ids of the entries that must be in the journal once this was answered with a 2xx."""
        if self.path == "/events":
            return [item["id"] for item in self.body]
        return [self.key] if self.method == "post" else []


class Worker(threading.Thread):
    """A client that works until the server is gone, and remembers all it sent."""

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
        assert sent.heard in (200, 201), sent.answer
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
    """Report whole lives of effects, shuffled, some of them in two batches."""
    items: list[dict[str, Any]] = []
    session = f"batch {new_key()[:4]}"
    for number in range(15):
        base = {"session": session, "effect_key": f"{worker.name}-{number}-{new_key()[:6]}"}
        told = [{"kind": "effect.planned", "tool": "t", "task": "T"}, {"kind": "effect.dispatched"}]
        told += [{"kind": "effect.acknowledged", "outcome": "ok"}] if number % 3 else []
        items += [{"id": new_key(), **base, **fact} for fact in told]
    random.shuffle(items)
    worker.send("/events", items[:20])
    worker.send("/events", items[10:])  # overlaps the first


def uploads(worker: Worker) -> None:
    """Record artifacts and send their bytes."""
    data = random.randbytes(200_000)
    about = {"session": "commands", "type": "log", "media_type": "text/plain", "size": len(data)}
    told = worker.send("/artifacts", {**about, "sha256": hashlib.sha256(data).hexdigest()})
    worker.send(told["upload"].removeprefix("/api/v1"), data, "put")


def wait_for(workers: list[Worker], answers: int) -> None:
    """Return at a random moment after so many answers were heard."""
    until = time.monotonic() + 60
    while sum(sent.heard is not None for worker in workers for sent in list(worker.log)) < answers:
        assert time.monotonic() < until, "the server hardly answers"
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.5))


def look(server: Server) -> list[str]:
    """Look into the journal; fail on what does not agree; return the ids of all that agents put there."""
    found = json.loads(server.run(BOOK).splitlines()[-1])
    assert found["wrong"] == []
    ids: list[str] = found["ids"]
    return ids


def test_what_was_said_is_so_exactly_once(house: Server, token: str) -> None:
    agent = Caller(token, address=house.url)
    agent.session("commands")
    log: list[Sent] = []
    for round_ in range(ROUNDS):
        works = [commands, commands, commands, batches, batches, uploads]
        workers = [
            Worker(house, token, f"w{round_}-{n}", works[n % len(works)]) for n in range(CLIENTS)
        ]
        for worker in workers:
            worker.start()
        wait_for(workers, ENOUGH)
        house.kill()
        for worker in workers:
            worker.join(60)
            assert worker.fault is None, repr(worker.fault)
            log += worker.log
        house.start()
    said = [sent for sent in log if sent.heard in (200, 201)]
    unheard = [sent for sent in log if sent.heard is None]
    assert len(said) >= ENOUGH * ROUNDS
    assert unheard, "no request was cut off: the test has proved nothing"
    ids = look(house)
    known = set(ids)
    assert len(ids) == len(known)
    assert [one for sent in said for one in sent.ids if one not in known] == []
    # Of a batch that nobody heard of, either all is there or nothing.
    mentions = Counter(one for sent in log for one in sent.ids)
    for sent in unheard:
        fresh = [one for one in sent.ids if mentions[one] == 1]
        assert len(known & set(fresh)) in (0, len(fresh))
    # Everything again, in another order: nothing is done twice and nothing is answered otherwise.
    random.shuffle(log)
    for sent in sorted(log, key=lambda sent: (sent.path == "/events", sent.method)):
        again = sent.ask(agent)
        if sent.heard is None:
            assert again.status_code in (200, 201, 409), again.text
        elif sent.path == "/events":
            assert {result["status"] for result in again.json()["results"]} == {"duplicate"}
        elif sent.path.endswith("/dispatch"):
            assert again.status_code in (200, 409)
            assert (
                again.status_code == 409 or again.json()["remote_key"] == sent.answer["remote_key"]
            )
        else:
            assert again.status_code in (sent.heard, 200), again.text
            assert again.json()["id"] == sent.answer["id"]
    after = look(house)
    assert len(after) == len(set(after))
    assert known <= set(after) <= known | {one for sent in unheard for one in sent.ids}


def test_an_artifact_whose_bytes_were_acknowledged_is_whole_after_a_crash(
    house: Server, token: str
) -> None:
    agent = Caller(token, address=house.url)
    agent.session("commands")
    kept: list[tuple[str, bytes]] = []

    def upload(worker: Worker) -> None:
        uploads(worker)
        kept.append((worker.log[-1].path, worker.log[-1].body))

    workers = [Worker(house, token, f"u{n}", upload) for n in range(3)]
    for worker in workers:
        worker.start()
    wait_for(workers, 6)
    house.kill()
    for worker in workers:
        worker.join(60)
        assert worker.fault is None, repr(worker.fault)
    house.start()
    assert kept
    for path, data in kept:
        assert agent.client.get(path).content == data
    # What lies under a hash has that hash, acknowledged or not: a file is there whole or under
    # another name.
    for file in Path(house.var / "artifacts").rglob("*"):
        if file.is_file() and not file.name.startswith(".incoming-"):
            assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name
    look(house)


def test_a_dispatch_is_not_granted_again_to_another_process(house: Server, token: str) -> None:
    agent = Caller(token, address=house.url)
    agent.session("commands")
    plan = {
        "session": "commands",
        "effect_key": new_key(),
        "tool": "t",
        "arguments": {"n": new_key()},
    }
    effect, key = agent.post("/effects", plan).json(), new_key()
    granted = agent.dispatch(effect, "the process before", key)
    house.kill()
    house.start()
    path = f"/effects/{effect['id']}/dispatch"
    body = {"intent_digest": effect["intent_digest"]}
    for other_key in (key, new_key()):
        refused = agent.post(path, {**body, "process": "the process after"}, key=other_key)
        assert code(refused) == (409, "ALREADY_DISPATCHED")
        assert refused.json()["effect"]["state"] == "dispatched"
    assert agent.post("/effects", plan).json()["answer"] == "ambiguous"
    # The very same process that merely lost the answer hears it again.
    again = agent.dispatch(effect, "the process before", key)
    assert (again["attempt"], again["remote_key"]) == (1, granted["remote_key"])
