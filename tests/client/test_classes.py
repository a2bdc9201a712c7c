"""Client and verdict table: every tool class, killed at every step, with the real server.

The process is simulated, because it must die within a request. The next one takes the session with
`takeover`, as a supervisor does that saw the process die.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gatebook_client as gatebook
import httpx
import pytest
from gatebook_client.testing import Crash
from gatebook_client.testing.fake import find_step

from tests.api.api_client import NO_TLS
from tests.config.server import Server

LIFETIME_S = 1
CLASSES = [
    "read_only",
    "idempotent",
    "idempotency_key",
    "transactional",
    "probeable",
    "compensable",
    "opaque",
]
TOOLS = f"""
tools:
  read_only: {{class: read_only}}
  idempotent: {{class: idempotent}}
  idempotency_key: {{class: idempotency_key, key_window_s: 3600}}
  transactional: {{class: transactional, request_lifetime_s: {LIFETIME_S}}}
  probeable: {{class: probeable, request_lifetime_s: {LIFETIME_S}}}
  compensable: {{class: compensable, undo: key}}
  compensable.undo: {{class: idempotent}}
  found: {{class: compensable, undo: reference, probe: true, request_lifetime_s: {LIFETIME_S}}}
"""
STEPS = [("before", "plan"), ("after", "plan"), ("before", "dispatch"), ("after", "dispatch")]
STEPS += [("before", "acknowledge"), ("after", "acknowledge")]


class Mortal(httpx.HTTPTransport):
    """A process that dies before or after a step."""

    def __init__(self, when: str, step: str) -> None:
        super().__init__(verify=NO_TLS)
        self.when, self.step, self.dead = when, step, False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        step = find_step(request)
        if self.dead and step == "heartbeats":
            raise httpx.ConnectError("dead", request=request)
        if self.dead or (step, self.when) == (self.step, "before"):
            self.dead = True
            raise Crash
        response = super().handle_request(request)
        if step == self.step:
            self.dead = True
            raise Crash
        return response


@dataclass
class World:
    """The remote system. It deduplicates keys if the tool class requires that."""

    tool: str
    done: list[str] = field(default_factory=list)

    def act(self, remote_key: str) -> gatebook.Result:
        if self.tool != "idempotency_key" or remote_key not in self.done:
            self.done.append(remote_key)
        return gatebook.Result(reference=f"r-{remote_key}")

    def probe(self, attempt: gatebook.AttemptInfo) -> str | None:
        return f"r-{attempt.remote_key}" if attempt.remote_key in self.done else None

    def take_back(self, attempt: gatebook.AttemptInfo, _key: str) -> None:
        if attempt.remote_key in self.done:
            self.done.remove(attempt.remote_key)


@pytest.fixture(scope="module")
def client(
    live_server_process: Server, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., gatebook.Client]:
    server, path = live_server_process, Path(tmp_path_factory.mktemp("classes")) / "tools.yaml"
    server.run(
        "from django.db import transaction; from accounts import projects\n"
        "with transaction.atomic(): projects.create_project('classes')"
    )
    path.write_text(TOOLS)
    server.manage("load_tools", "--project", "classes", str(path))
    token = server.token("worker", "--project", "classes")
    return lambda transport=None: gatebook.Client(server.url, token, transport=transport)


def undecidable(tool: str, when: tuple[str, str]) -> bool:
    return tool == "opaque" and when in (("after", "dispatch"), ("before", "acknowledge"))


def test_killed_while_it_compensates_the_next_process_compensates_and_repeats(
    client: Callable[..., gatebook.Client],
) -> None:
    for number, when in enumerate(STEPS[2:]):
        world, key = World("compensable"), f"taking-back-{number}"
        for transport in (Mortal("before", "acknowledge"), Mortal(*when)):
            with pytest.raises(Crash), client(transport).session(key, takeover=True) as s:
                s.perform("compensable", {"to": "ada"}, world.act, compensate=world.take_back)
        for _ in range(2):
            with client().session(key, takeover=True, end_on_exit=False) as s:
                assert s.perform(
                    "compensable", {"to": "ada"}, world.act, compensate=world.take_back
                ).ok
        assert len(world.done) == 1, when


@pytest.mark.matrix
def test_an_attempt_after_a_compensated_one_is_compensated_as_well(
    client: Callable[..., gatebook.Client],
) -> None:
    """Every attempt has its own compensation key, also when the next process finds a compensation
    half done."""
    for number, when in enumerate([None, *STEPS[2:]]):
        world, key = World("compensable"), f"taken-back-twice-{number}"
        with pytest.raises(TimeoutError), client().session(key) as s:
            s.perform("compensable", {"to": "ada"}, dropped)
        with client().session(key, end_on_exit=False) as s:
            s.register("compensable", compensate=world.take_back)
            assert [step.result for step in s.recover().steps] == ["undone"]
        with pytest.raises(Crash), client(Mortal("before", "acknowledge")).session(key) as s:
            s.perform("compensable", {"to": "ada"}, world.act)
        assert len(world.done) == 1
        if when is not None:
            with pytest.raises(Crash), client(Mortal(*when)).session(key, takeover=True) as s:
                s.perform("compensable", {"to": "ada"}, world.act, compensate=world.take_back)
        with client().session(key, takeover=True, end_on_exit=False) as s:
            s.register("compensable", compensate=world.take_back)
            assert s.recover().safe, when
            done = s.perform("compensable", {"to": "ada"}, world.act)
            assert (done.ok, done.already_done, done.attempt) == (True, False, 3), when
            assert s.resume()["safe"]
        assert len(world.done) == 1, when


def test_an_effect_compensated_for_good_is_not_repeated(
    client: Callable[..., gatebook.Client],
) -> None:
    world = World("compensable")
    with client().session("for-good", end_on_exit=False) as s:
        s.register("compensable", compensate=world.take_back)
        with pytest.raises(TimeoutError):
            s.perform("compensable", {"to": "ada"}, dropped, key="e-1")
        done = s.perform("compensable", {"to": "ada"}, world.act, key="e-1")
        assert (done.ok, done.attempt) == (True, 2)
        s.compensate(done, "compensable.undo", {"to": "ada"}, lambda _key: world.done.clear())
        assert s.perform("compensable", {"to": "ada"}, world.act, key="e-1").state == "compensated"
    assert world.done == []


@pytest.mark.parametrize("probes", [1, 2, 3])
def test_each_probe_with_several_hits_leads_to_its_own_compensation(
    client: Callable[..., gatebook.Client], probes: int
) -> None:
    """A remote that keeps doubling late: each probe with several hits needs its own compensation."""
    taken_back: list[str] = []

    def probe_all(_known: gatebook.AttemptInfo) -> list[str] | str:
        return ["r-1", f"r-{len(taken_back) + 2}"] if len(taken_back) < probes else "r-1"

    with client().session(f"several-{probes}", end_on_exit=False) as s:
        s.register("found", probe=probe_all, compensate=lambda _known, key: taken_back.append(key))
        with pytest.raises(TimeoutError):
            s.perform("found", {"to": "ada"}, dropped)
        done = s.perform("found", {"to": "ada"}, dropped, wait_s=60)
        assert (done.already_done, done.reference) == (True, "r-1")
    assert len(taken_back) == len(set(taken_back)) == probes


def dropped(_remote_key: str) -> None:
    raise TimeoutError


SAME, NEW = ("", ""), ("call-1", "call-2")
CASES = [pytest.param(tool, SAME, False, id=f"{tool}-same-names") for tool in CLASSES]
CASES += [
    pytest.param(
        tool,
        NEW,
        True,
        id=f"{tool}-new-call-ids-after-recovery",
        marks=() if tool == "probeable" else pytest.mark.matrix,
    )
    for tool in ("idempotency_key", "probeable", "compensable", "opaque")
]


@pytest.mark.parametrize(("tool", "calls", "recovers"), CASES)
def test_killed_at_every_step_it_is_done_exactly_once_or_a_person_decides(
    client: Callable[..., gatebook.Client], tool: str, calls: tuple[str, str], recovers: bool
) -> None:
    for when in STEPS:
        world, key = World(tool), f"{tool}-{'-'.join(when)}-{calls[0]}-{recovers}"
        transport = Mortal(*when)
        with pytest.raises(Crash), client(transport).session(key) as s:
            s.perform(tool, {"to": "ada"}, world.act, call_id=calls[0])
        with client().session(key, takeover=True, end_on_exit=False) as s:
            s.register(tool, probe=world.probe, compensate=world.take_back)
            if recovers:
                assert s.recover().safe != undecidable(tool, when)
            if undecidable(tool, when):
                with pytest.raises(gatebook.HumanDecisionRequired):
                    s.perform(tool, {"to": "ada"}, world.act, call_id=calls[1])
                assert len(world.done) == (when == ("before", "acknowledge"))
                continue
            done = s.perform(tool, {"to": "ada"}, world.act, call_id=calls[1])
            assert done.ok, when
            assert s.resume()["safe"], when
        if tool not in ("read_only", "idempotent"):  # which may run again without harm
            assert len(world.done) == 1, when
        assert world.done, when
