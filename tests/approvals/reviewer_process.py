"""A process next to the running server in which people decide: Django on the server's database.

Each line of input is a JSON list [seconds to wait, verb, arguments…]; each is answered by one line.
A ruling does what the page does with the same reason, in a process of its own, as a second worker
would.
"""

import json
import threading
from typing import Any

from tests.config.server import Copy, Server

BY_HAND = """
import json, sys, time, threading
import django
django.setup()
from django.contrib.auth.models import User
from django.db import connection, transaction
from approvals.gates import gates
from approvals.voting import votes
from approvals.models import Gate
from approvals.policies.engine import Requirement
from approvals.voting.votes import ShownGate
from approvals.voting.warned_proof import list_warnings, load_request_checks
from tests.rows_with_entries import add_row
from db.clock import now_us
from db.ids import new_uuid7
from ledger import stops
from ledger.models import Effect
from ledger.models import Stop
from accounts.models import Agent
from accounts.models import Membership
from sessions.models import Session

reviewer = Membership.objects.select_related("project", "user").get(user__username=sys.argv[1])

def open_gates(agent, number, decide_within_s=3600, risk="high"):
    agent = Agent.objects.get(project=reviewer.project, name=agent)
    now, made, needed = now_us(), [], Requirement().strengthened("irreversible", risk)
    with transaction.atomic():
        session = Session.objects.create(id=new_uuid7(), project=reviewer.project, agent=agent, key=new_uuid7().hex,
            opened_position=now, created_at_us=now, seen_at_us=now)
        for n in range(number):
            gate = new_uuid7()
            effect = Effect.objects.create(id=new_uuid7(), project=reviewer.project, session=session, agent=agent,
                effect_key=f"e-{n}", tool="git.push", opened_position=now + n, received_us=now, changed_us=now,
                intent_digest="v1:" + "0" * 64, permission="pending", permission_basis="policy", permission_ref=gate.hex)
            add_row(Gate(id=gate, project=reviewer.project, session=session, effect=effect, agent=agent,
                plan_position=now, digest="v1:" + "1" * 64,
                requirement=needed.as_dict(), requirement_hash=needed.hash, risk=risk,
                reversibility="irreversible", tool="git.push",
                step_up=needed.step_up, reason_of_yes=needed.reason_of_yes,
                requested_at_us=now, decide_by_us=now + int(decide_within_s * 1_000_000)))
            made.append(str(gate))
    return made

def rule(gate, answer, reason="for a good reason"):
    gate_row = Gate.objects.get(id=gate)
    at = now_us()
    warnings = list_warnings(load_request_checks(gate_row, gate_row.effect))
    shown = ShownGate(gate_row.version, gate_row.digest, "0" * 64, True, at, warnings)
    with transaction.atomic(durable=True):
        outcome = votes.cast_vote(gate_row, reviewer, answer, reason, shown, step_up="typed_digest")
    assert outcome.refusal is None, outcome.refusal
    return time.time()

def stop(session):
    with transaction.atomic(durable=True):
        return stops.set_stop(reviewer.project, "session", session, "stop that", reviewer.user).id.hex

def statement(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]

def session_of(gate):
    return Gate.objects.get(id=gate).session_id.hex

print("ready", flush=True)
for line in sys.stdin:
    wait_s, verb, *arguments = json.loads(line)
    time.sleep(wait_s)
    print(json.dumps({"open": open_gates, "rule": rule, "stop": stop, "sql": statement, "session_of": session_of}
        [verb](*arguments)), flush=True)
"""


class People:
    """The reviewers. Close them by `close`, or use them as a context."""

    def __init__(self, server: Server) -> None:
        self.process = Copy(server.shell, BY_HAND, server.administrator)
        self.mutex = threading.Lock()
        assert self._line() == "ready"

    def __enter__(self) -> "People":
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        self.process.ended()

    def do(self, verb: str, *arguments: Any, after_s: float = 0) -> Any:
        """Run a verb after some seconds, and return its result."""
        with self.mutex:
            self.process.stdin.write(json.dumps([after_s, verb, *arguments]) + "\n")
            self.process.stdin.flush()
            return json.loads(self._line())

    def open(self, number: int = 1, agent: str = "tester", **options: Any) -> list[str]:
        """Open pending gates of an agent; return their ids."""
        return list(self.do("open", agent, number, *options.values()))

    def rule(self, gate: str, answer: str = "approve", *, after_s: float = 0) -> float:
        """Answer a gate; return when it was committed, in seconds since the epoch."""
        return float(self.do("rule", gate, answer, after_s=after_s))

    def _line(self) -> str:
        return self.process.stdout.readline().strip()
