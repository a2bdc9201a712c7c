"""The reviewer process: people who decide, in their own process beside the server.

With sixty-four people voting over HTTP, the benchmark would measure their browsers. This process
therefore calls the same functions as the pages, and gets commands as lines of JSON. Times are of
the monotonic clock, which all processes of a machine share.
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
from approvals.policies import policy_evaluation
from approvals.voting import votes
from approvals.policies.policies_yaml import parse_policies
from approvals.gates.gates import GateConflict
from approvals.policies.engine import compile_rules
from approvals.policies.engine import evaluate_rules
from approvals.models import Gate
from approvals.policies.policy_evaluation import PlanPayload
from approvals.voting.votes import ShownGate
from db.clock import now_us
from db.ids import new_uuid7
from ledger import stops
from accounts import people
from accounts import projects
from accounts.models import Membership

project = projects.find_project("default")
PEOPLE = int(sys.argv[1])
reviewers, active_stops = [], []

def prepare(rules):
    with transaction.atomic(durable=True):
        policies.activate_policy_set(project, policies.load_policy_set(project, rules), "enforce")
    for number in range(PEOPLE):
        with transaction.atomic(durable=True):
            people.add_project_member(project, f"reviewer-{number}", "reviewer", people.generate_password())
    reviewers.extend(Membership.objects.select_related("project", "user").filter(user__username__startswith="reviewer-"))
    return len(reviewers)

def make_shown_gate(gate):
    return ShownGate(gate.version, gate.digest, "0" * 64, True, now_us())

def run_transaction(work):
    while True:
        try:
            with transaction.atomic(durable=True):
                return work()
        except GateConflict:
            pass

def rule(identity, at):
    gate = Gate.objects.get(id=identity)
    seen = make_shown_gate(gate)
    time.sleep(max(0, at - time.monotonic()))
    began = time.monotonic()
    outcome = run_transaction(lambda: votes.cast_vote(gate, reviewers[0], "approve", "", seen, step_up="typed_digest"))
    ended = time.monotonic()
    return [began, ended, outcome.refusal]

def rule_many(planned):
    def rule_item(item):
        try:
            return rule(*item)
        finally:
            connection.close()
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(rule_item, planned))

def deny_many(gates):
    for gate in Gate.objects.filter(id__in=gates):
        seen = make_shown_gate(gate)
        run_transaction(lambda: votes.cast_vote(gate, reviewers[1], "deny", "not before Thursday", seen, step_up="typed_digest"))

def race(gates):
    results = []
    barrier = threading.Barrier(PEOPLE)
    def vote(person, choice, rows):
        for identity, gate, seen in rows:
            barrier.wait(60)
            outcome = run_transaction(lambda: votes.cast_vote(gate, person, choice, "agreed by all", seen, step_up="typed_digest"))
            results.append((identity, outcome.refusal[0] if outcome.refusal else "accepted"))
            if connection.vendor == "postgresql":
                connection.close()  # there are fewer connections than people
    rows = [(gate, row, make_shown_gate(row)) for gate in gates for row in [Gate.objects.get(id=gate)]]
    threads = [threading.Thread(target=vote, args=(person, ("approve", "deny")[number % 2], rows))
        for number, person in enumerate(reviewers)]
    began = time.monotonic()
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return [time.monotonic() - began, results]

def revoke(identity, at):
    gate = Gate.objects.get(id=identity)
    time.sleep(max(0, at - time.monotonic()))
    outcome = run_transaction(lambda: votes.revoke_approval(gate, reviewers[0], "on second thoughts"))
    return outcome.refusal[0] if outcome.refusal else "revoked"

def stop():
    with transaction.atomic(durable=True):
        active_stops.append(stops.set_stop(project, "project", "", "let them go", reviewers[0].user))

def lift():
    with transaction.atomic(durable=True):
        stops.lift_stop(active_stops.pop(), "go on", reviewers[0].user)

def plan_cpu(rules, times):
    compiled = compile_rules(parse_policies(rules))
    with transaction.atomic(durable=True):
        policies.activate_policy_set(project, policies.load_policy_set(project, rules), "enforce")
    session, values = new_uuid7(), {"ref": "refs/heads/main", "ref_class": "production", "environment": "", "resource": ""}
    payload = PlanPayload({"remote": "origin", "refspec": "HEAD:refs/heads/main", "force": False}, "acme/shop")
    spent = {"matching": [], "all": []}
    for number in range(times):
        began = time.thread_time()
        policy_evaluation.load_active_policy(project.id)
        policy_input = policy_evaluation.build_policy_input(project.id, session, "bench", "git.push", values, payload)
        before = time.thread_time()
        result = evaluate_rules(compiled, policy_input, "enforce", lambda rate: 0)
        ended = time.thread_time()
        spent["matching"].append(1000 * (ended - before))
        spent["all"].append(1000 * (ended - began))
    return [result.outcome, spent]

print("ready", flush=True)
for line in sys.stdin:
    name, *arguments = json.loads(line)
    print(json.dumps(globals()[name](*arguments)), flush=True)
"""


class Reviewers:
    """PEOPLE reviewers of the project "default", as a context manager."""

    def __init__(self, installation: Installation, rules: str = RULES) -> None:
        self._rules = rules
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

    def __enter__(self) -> "Reviewers":
        self._read_line()
        self.do("prepare", self._rules)
        return self

    def __exit__(self, *_raised: object) -> None:
        self._to.close()
        self._process.wait(30)

    def begin(self, command: str, *arguments: Any) -> None:
        """Begin a command; `end` waits for its result."""
        self._to.write(json.dumps([command, *arguments]) + "\n")
        self._to.flush()

    def end(self) -> Any:
        """Return the result of the command that was begun."""
        return json.loads(self._read_line())

    def do(self, command: str, *arguments: Any) -> Any:
        """Run one command and return its result."""
        self.begin(command, *arguments)
        return self.end()

    def _read_line(self) -> str:
        line = self._from.readline()
        if not line:
            raise RuntimeError("the reviewer process ended")
        return line
