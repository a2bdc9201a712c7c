"""A process dies by SIGKILL while it records a ruling: the ruling is complete or absent, and
delivered."""

import json
from dataclasses import dataclass

import pytest

from tests.api.api_client import Caller, code, new_key
from tests.config.server import ROOT, Copy, Server

# The approval of a page, in a process of its own, which kills itself at the place called `PLACE`.
ANSWER = """
import json, os, signal, sys
import django
django.setup()
from approvals.gates import gates
from approvals.voting import votes
from approvals.models import Gate
from approvals.voting.votes import ShownGate
from db.clock import now_us
from accounts.models import Membership
place, identity = sys.argv[1:]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
if place == "between the vote and the ruling":
    votes._apply_ruling = lambda *_: die()
if place == "between the ruling and the commit":
    approve = gates.approve_gate
    gates.approve_gate = lambda *arguments: (approve(*arguments), die())
gate = Gate.objects.get(id=identity)
person = Membership.objects.select_related("project", "user").get(project=gate.project, role="reviewer")
shown = ShownGate(gate.version, gate.digest, "0" * 64, True, now_us())
outcome = votes.cast_vote(gate, person, "approve", "", shown)
if place == "before the answer is sent":
    die()
print(outcome.refusal[0] if outcome.refusal else "recorded")
"""
RULING_ROW = """
import json
from approvals.models import Gate, Vote
from journal.models import Entry
gate = Gate.objects.select_related("effect").get(id="{gate}")
kinds = list(Entry.objects.filter(subject=gate.id).order_by("position").values_list("kind", flat=True))
print(json.dumps([gate.status, gate.effect.permission, Vote.objects.filter(gate=gate).count(), kinds]))
"""
RULES = "name: crash\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
PENDING = ["pending", "pending", 0, ["gate.requested"]]
APPROVED = [
    "approved",
    "granted",
    1,
    ["gate.requested", "gate.voted", "gate.ruled", "effect.granted"],
]


@dataclass
class Place:
    """A project in which everything needs approval, with one reviewer and an agent."""

    server: Server
    agent: Caller

    def gate(self) -> tuple[dict[str, str], str]:
        """Plan an effect; return it and its gate."""
        effect = self.agent.plan(new_key(), arguments={"n": new_key()})
        return effect, effect["gate"]["id"]

    def answer(self, gate: str, place: str = "nowhere") -> tuple[int, str]:
        """Approve as the reviewer; return the exit code of that process and its output."""
        ended, output = Copy(self.server.shell, ANSWER, place, gate).ended()
        return ended, output.strip()

    def load_ruling(self, gate: str) -> object:
        """The stored rows of a gate, read without the server."""
        return json.loads(self.server.run(RULING_ROW.format(gate=gate)))


@pytest.fixture(scope="module")
def place(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> Place:
    name = f"crash-{new_key()[:8]}"
    rules = tmp_path_factory.mktemp("rules") / "policies.yaml"
    rules.write_text(RULES)
    live_server_process.run(
        f"""
from django.db import transaction
from accounts import people
from accounts import projects
with transaction.atomic():
    people.add_project_member(projects.create_project("{name}"), "{name}", "reviewer", people.generate_password())
"""
    )
    live_server_process.manage(
        "load_tools", "--project", name, str(ROOT / "evaluation" / "demo_tools.yaml")
    )
    live_server_process.manage(
        "load_policies", "--project", name, str(rules), "--activate", "enforce"
    )
    agent = Caller(
        live_server_process.token("tester", "--project", name), address=live_server_process.url
    )
    agent.session("s-1")
    return Place(live_server_process, agent)


@pytest.mark.parametrize(
    "where", ["between the vote and the ruling", "between the ruling and the commit"]
)
def test_killed_before_the_commit_nothing_is_recorded_and_the_vote_can_be_sent_again(
    place: Place, where: str
) -> None:
    effect, gate = place.gate()
    assert place.answer(gate, where) == (-9, "")
    assert place.load_ruling(gate) == PENDING
    body = {"process": "p", "intent_digest": effect["intent_digest"]}
    assert code(place.agent.post(f"/effects/{effect['id']}/dispatch", body)) == (
        409,
        "GATE_PENDING",
    )
    assert place.answer(gate) == (0, "recorded")
    assert place.load_ruling(gate) == APPROVED
    assert place.agent.get(f"/gates/{gate}", wait=40, since=1).json()["proceed"] is True


def test_killed_after_the_commit_the_ruling_is_kept_and_the_agent_continues(place: Place) -> None:
    effect, gate = place.gate()
    assert place.answer(gate, "before the answer is sent") == (-9, "")
    place.server.kill()
    place.server.start()
    assert place.load_ruling(gate) == APPROVED
    assert place.agent.get(f"/gates/{gate}", wait=40, since=1).json()["proceed"] is True
    assert place.answer(gate) == (0, "not_resolved")
    assert place.agent.dispatch(effect)["attempt"] == 1
    assert place.agent.get(f"/gates/{gate}").json()["status"] == "used"
