"""People who decide, in a process of their own beside the server, as a second worker would be.

The benchmark reaches the product by HTTP alone; but sixty-four people who answer in one moment
would be measured by their browsers. So this process is given Python that calls the verbs which the
pages call, and is told what to do by lines of JSON. Times are of the one monotonic clock that all
processes of a machine share.
"""

import json
import subprocess
import sys
from typing import Any, Final

from evaluation.bench.installation import ROOT, Installation

PEOPLE: Final = 64
RULES: Final = """
name: bench
rules:
  - {id: pushes, title: Every push, match: {tools: [bench.push]}, outcome: require}
  - {id: rest, title: The rest, match: {}, outcome: allow}
"""
_PROGRAM: Final = """
import json, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import django
django.setup()
from django.conf import settings
from django.db import connection, transaction
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
from approvals.policies import policies
from approvals.policies import policy_inputs
from approvals.voting import votes
from approvals.policies.policies_yaml import parse_policies
from approvals.gates.gates import GateConflict
from approvals.policies.engine import compile_rules
from approvals.policies.engine import evaluate_rules
from approvals.models import Gate
from approvals.policies.policy_inputs import PlanPayload
from approvals.voting.votes import ShownGate
from db.clock import now_us
from db.ids import new_uuid7
from ledger import stops
from accounts import people
from accounts import projects
from accounts.models import Membership

project = projects.find_project("default")
PEOPLE = int(sys.argv[1])
deciders, standing = [], []

def prepare(rules):
    with transaction.atomic(durable=True):
        policies.activate_policy_set(project, policies.load_policy_set(project, rules), "enforce")
    for number in range(PEOPLE):
        with transaction.atomic(durable=True):
            people.add_project_member(project, f"decider-{number}", "reviewer", people.generate_password())
    deciders.extend(Membership.objects.select_related("project", "user").filter(user__username__startswith="decider-"))
    return len(deciders)

def shown(gate):
    return ShownGate(gate.version, gate.digest, "0" * 64, True, now_us())

def verb(work):
    while True:
        try:
            with transaction.atomic(durable=True):
                return work()
        except GateConflict:
            pass

def rule(identity, at):
    gate = Gate.objects.get(id=identity)
    seen = shown(gate)
    time.sleep(max(0, at - time.monotonic()))
    began = time.monotonic()
    outcome = verb(lambda: votes.cast_vote(gate, deciders[0], "approve", "", seen, step_up="typed_digest"))
    ended = time.monotonic()
    return [began, ended, outcome.refusal]

def rule_many(planned):
    def one(item):
        try:
            return rule(*item)
        finally:
            connection.close()
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, planned))

def race(gates):
    told = []
    barrier = threading.Barrier(PEOPLE)
    def one(person, wants, found):
        for identity, gate, seen in found:
            barrier.wait(60)
            outcome = verb(lambda: votes.cast_vote(gate, person, wants, "agreed by all", seen, step_up="typed_digest"))
            told.append((identity, outcome.refusal[0] if outcome.refusal else "stands"))
            if connection.vendor == "postgresql":
                connection.close()  # there are fewer of them than people
    found = [(gate, row, shown(row)) for gate in gates for row in [Gate.objects.get(id=gate)]]
    threads = [threading.Thread(target=one, args=(person, ("approve", "deny")[number % 2], found))
        for number, person in enumerate(deciders)]
    began = time.monotonic()
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return [time.monotonic() - began, told]

def revoke(identity, at):
    gate = Gate.objects.get(id=identity)
    time.sleep(max(0, at - time.monotonic()))
    outcome = verb(lambda: votes.revoke_approval(gate, deciders[0], "on second thoughts"))
    return outcome.refusal[0] if outcome.refusal else "revoked"

def stop():
    with transaction.atomic(durable=True):
        standing.append(stops.set_stop(project, "project", "", "let them go", deciders[0].user))

def lift():
    with transaction.atomic(durable=True):
        stops.lift_stop(standing.pop(), "go on", deciders[0].user)

def plan_cpu(rules, times):
    compiled = compile_rules(parse_policies(rules))
    with transaction.atomic(durable=True):
        policies.activate_policy_set(project, policies.load_policy_set(project, rules), "enforce")
    session, values = new_uuid7(), {"ref": "refs/heads/main", "ref_class": "production", "environment": "", "resource": ""}
    asked = PlanPayload({"remote": "origin", "refspec": "HEAD:refs/heads/main", "force": False}, "acme/shop")
    spent = {"matching": [], "all": []}
    for number in range(times):
        began = time.thread_time()
        force = policies.load_active_policy(project.id)
        wish = policy_inputs.build_policy_input(project.id, session, "bench", "git.push", values, asked)
        before = time.thread_time()
        said = evaluate_rules(compiled, wish, "enforce", lambda rate: 0)
        ended = time.thread_time()
        spent["matching"].append(1000 * (ended - before))
        spent["all"].append(1000 * (ended - began))
    return [said.outcome, spent]

print("ready", flush=True)
for line in sys.stdin:
    name, *arguments = json.loads(line)
    print(json.dumps(globals()[name](*arguments)), flush=True)
"""


class Deciders:
    """So many reviewers of the project "default". Use it as a context."""

    def __init__(self, installation: Installation) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(PEOPLE)],
            cwd=ROOT,
            env={**installation.environment, "DJANGO_SETTINGS_MODULE": "config.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a process without pipes")
        self._to, self._from = self._process.stdin, self._process.stdout

    def __enter__(self) -> "Deciders":
        self._line()
        self.do("prepare", RULES)
        return self

    def __exit__(self, *_raised: object) -> None:
        self._to.close()
        self._process.wait(30)

    def begin(self, verb: str, *arguments: Any) -> None:
        """Let them begin; `end` waits for what came of it."""
        self._to.write(json.dumps([verb, *arguments]) + "\n")
        self._to.flush()

    def end(self) -> Any:
        """What came of what was begun."""
        return json.loads(self._line())

    def do(self, verb: str, *arguments: Any) -> Any:
        """Let them do one thing and return what came of it."""
        self.begin(verb, *arguments)
        return self.end()

    def _line(self) -> str:
        line = self._from.readline()
        if not line:
            raise RuntimeError("the process of the deciders fell")
        return line
