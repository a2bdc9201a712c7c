"""Load the sample project: two weeks of five agents, written by the product's own commands.

The agents' commands go through the API, people's through the services that their pages call, all
under a simulated clock. The journal records when it really received them. Removal erases every
body, ends every access and hides the project (docs/decisions/0041-sample-project.md).
"""

import heapq
import itertools
import random
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from accounts import agents, people, projects, repositories, tokens
from accounts.models import AgentToken, Membership, Project
from approvals import exemptions
from approvals.gates import gates
from approvals.gates.resolution import resolve_effect
from approvals.models import Gate
from approvals.policies import policies
from approvals.review import form_token
from approvals.review.card import build_card
from approvals.voting import votes
from approvals.voting.votes import ShownGate
from approvals.voting.warned_proof import list_warnings, load_request_checks
from db.clock import now_us, simulate_clock
from db.errors import ChangeRefused
from investigation.fulltext import store
from journal import erasures
from journal.models import Entry
from ledger.models import Effect
from ledger.resolutions import ResolutionInput
from ledger.tools import registry, tools_yaml
from pages.sample.sample_agent import SampleAgent
from pages.sample.sample_rules import (
    AGENTS,
    PEOPLE,
    REPOSITORIES,
    ROUTINES,
    RULES,
    TOOLS,
    Step,
)

DAYS: Final = 14
_SEED: Final = 11
_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_ERASED_AT_ONCE: Final = 200  # bodies of a transaction
_ERASURE_REASON: Final = "The sample project was removed."
# A story yields the length until its next step, in microseconds.
Story = Iterator[int]


def load_sample(administrator: User, routine_days: int = DAYS) -> Project:
    """Create and fill a sample project of which `administrator` becomes the administrator.

    `routine_days` are the days, from the first one on, on which the agents do routine work.

    Takes about 20 seconds; a failure removes what was written. Raises ChangeRefused.
    """
    actor = people.ensure_pseudonym(administrator)
    with transaction.atomic(durable=True):
        project = projects.create_sample(actor=actor)
    try:
        _SampleWork(project, routine_days).run()
        with transaction.atomic(durable=True):
            people.add_project_member(
                project, administrator.get_username(), "administrator", actor=actor
            )
            projects.show_sample(project, actor=actor)
    except BaseException:
        remove_sample(project, actor)
        raise
    return project


def remove_sample(project: Project, actor: str) -> None:
    """Remove a sample: end every access, erase every text of its journal, and hide it.

    Entries and their commitments stay, as everywhere. Raises ChangeRefused for other projects.
    """
    with transaction.atomic(durable=True):
        projects.retire_sample(project, actor=actor)
        for token in AgentToken.objects.filter(project=project).select_related("agent"):
            tokens.revoke_agent_token(token, actor=actor)
        people.remove_all_members(project, actor=actor)
    own = ("erasure.executed",)
    while positions := list(
        Entry.objects.filter(project=project.id, body__isnull=False)
        .exclude(kind__in=own)
        .values_list("position", flat=True)[:_ERASED_AT_ONCE]
    ):
        with transaction.atomic(durable=True):
            store.lock_words()  # first, as every erasure
            for position in positions:
                erasures.erase_body(
                    project.id, position, reason=_ERASURE_REASON, actor=actor, now_us=now_us()
                )


def find_samples(user: User) -> list[Project]:
    """Return the sample projects that the person belongs to."""
    rows = Membership.objects.filter(user=user, role="administrator").select_related("project")
    return [row.project for row in rows if row.project.is_sample]


class _SampleWork:
    """The two weeks: routines and stories, in the order of their simulated time."""

    def __init__(self, project: Project, routine_days: int) -> None:
        self.project = project
        self.routine_days = routine_days
        self.random = random.Random(_SEED)  # noqa: S311 - the same work every time
        self.end_us = now_us() - 2 * _MINUTE
        self.begin_us = self.end_us - DAYS * _DAY
        self.agents: dict[str, SampleAgent] = {}
        self.members: dict[str, Membership] = {}
        self.numbers = itertools.count(1)

    def run(self) -> None:
        """Set the project up, then take every step at its time."""
        with simulate_clock(self.begin_us - _HOUR) as move:
            with transaction.atomic(durable=True):
                self._set_up()
            order = itertools.count()
            due = [(at, next(order), story) for at, story in self._plan_stories()]
            heapq.heapify(due)
            last = 0
            while due:
                at, _, story = heapq.heappop(due)
                last = max(at, last + 1_000)
                if last >= self.end_us:
                    continue  # what would happen after now
                move(last)
                pause = next(story, None)
                if pause is not None:
                    heapq.heappush(due, (last + pause, next(order), story))
        # The database binds exemptions to the real time of their entries.
        for _pause in self._use_exemption():
            pass
        for token in AgentToken.objects.filter(project=self.project).select_related("agent"):
            with transaction.atomic(durable=True):
                tokens.revoke_agent_token(token, actor="gatebook")

    def _set_up(self) -> None:
        for name, role in PEOPLE.items():
            password = None if people.has_username(name) else people.generate_password()
            self.members[name] = people.add_project_member(self.project, name, role, password)
        registry.declare_tools(self.project, tools_yaml.parse_tools_yaml(TOOLS))
        for name in REPOSITORIES:
            repositories.ensure_repository(self.project, name)
        policy_set = policies.load_policy_set(self.project, RULES)
        policies.activate_policy_set(self.project, policy_set, "enforce")
        for name, charter in AGENTS.items():
            agent = agents.ensure_agent(self.project, name)
            agents.set_agent_charter(
                agent, charter, version=agent.charter_version, actor="gatebook"
            )
            lifetime = tokens.parse_lifetime("1d")
            token = tokens.issue_token(agent, scope="agent", expires_in=lifetime, actor="gatebook")
            self.agents[name] = SampleAgent(name, token)

    def _plan_stories(self) -> Iterator[tuple[int, Story]]:
        """Yield every story with the time at which it begins."""
        for day in range(self.routine_days):
            for name, routines in ROUTINES.items():
                for _ in range(self.random.choice((1, 1, 2))):
                    at = self.begin_us + day * _DAY + self.random.randrange(8 * 60) * _MINUTE
                    routine = self.random.choice(routines)
                    yield at, self._work_routine(name, *routine)
        ago = self._at_days_ago
        push = {"repository": "web-shop", "ref": "main"}
        production = {"repository": "web-shop", "environment": "production"}
        for days, version in ((12.3, "3.101"), (8.2, "3.105"), (2.1, "3.112")):
            deploy = Step("deploy.run", {"version": version, "share": 100}, production, "Tested.")
            yield ago(days), self._ask_and_run("deploy-bot", deploy, "Checked on staging.")
        for days, number in ((11.6, 204), (6.4, 219), (1.3, 231)):
            merge = Step("git.push", {"commits": 2, "issue": f"SHOP-{number}"}, push, "Reviewed.")
            yield ago(days), self._ask_and_run("code-fixer", merge, "Reads well, tests pass.")
        refund = Step("payment.refund", {"order": "41077", "amount": 480}, {}, "Never arrived.")
        yield ago(9.4), self._ask_and_run("support-assistant", refund, "The parcel is lost.")
        delete = Step("db.delete", {"table": "customers", "rows": 1812}, {}, "They look unused.")
        yield ago(9.1), self._ask_and_stop("data-steward", delete, "Those are live customers.")
        friday = Step("deploy.run", {"version": "3.108", "share": 100}, production, "Merged.")
        yield ago(5.3), self._ask_and_stop("deploy-bot", friday, "Not before the weekend.")
        news = Step("mail.send", {"subject": "Spring sale", "recipients": 90}, {}, "The date came.")
        yield ago(7.2), self._ask_and_wait("support-assistant", news)
        yield ago(6.2), self._send_twice()
        yield ago(4.6), self._run_without_permission()
        yield ago(3.3), self._resolve_unknown()
        yield ago(0.11), self._repeat_tests()
        yield ago(0.16), self._lose_outcome()
        yield from self._plan_pending(push, production)

    def _plan_pending(
        self, push: dict[str, str], production: dict[str, str]
    ) -> Iterator[tuple[int, Story]]:
        """Yield the requests that wait for the reader."""
        ago = self._at_days_ago
        pending = (
            ("code-fixer", Step("git.push", {"commits": 3, "issue": "SHOP-240"}, push, "Ready.")),
            (
                "deploy-bot",
                Step("deploy.run", {"version": "3.114", "share": 10}, production, "A tenth first."),
            ),
            (
                "support-assistant",
                Step("payment.refund", {"order": "41203", "amount": 1250}, {}, "Paid twice."),
            ),
            (
                "data-steward",
                Step("db.delete", {"table": "carts", "rows": 5310}, {}, "Older than a year."),
            ),
            (
                "support-assistant",
                Step(
                    "mail.send",
                    {"subject": "We are sorry for the outage", "recipients": 4120},
                    {},
                    "Everybody who was affected.",
                ),
            ),
        )
        for index, (name, step) in enumerate(pending):
            yield ago(0.13 - index * 0.024), self._ask_and_leave(name, step)

    def _at_days_ago(self, days: float) -> int:
        return self.end_us - int(days * _DAY)

    def _open(self, name: str, title: str, **fields: Any) -> str:
        key = f"{name}-{next(self.numbers)}"
        self.agents[name].post("/sessions", {"key": key, "title": title, **fields})
        return key

    def _plan(self, name: str, session: str, step: Step, key: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "session": session,
            "effect_key": key,
            "tool": step.tool,
            "arguments": step.arguments,
            "why": step.why,
        }
        if step.target:
            body["target"] = step.target
        return self.agents[name].post("/effects", body)

    def _dispatch(self, name: str, effect: str, step: Step) -> None:
        body = {"process": f"{name}-1", "arguments": step.arguments}
        self.agents[name].post(f"/effects/{effect}/dispatch", body)

    def _acknowledge(self, name: str, effect: str, outcome: str = "ok") -> None:
        body: dict[str, Any] = {"attempt": 1, "outcome": outcome}
        self.agents[name].post(f"/effects/{effect}/acknowledge", body)

    def _work_routine(self, name: str, title: str, steps: tuple[Step, ...]) -> Story:
        """Do the calls of a routine; now and then a test fails."""
        number = str(100 + next(self.numbers))
        session = self._open(name, title.replace("{n}", number))
        yield _MINUTE
        for index, template in enumerate(steps):
            step = _fill_step(template, number)
            effect = str(self._plan(name, session, step, f"{step.tool}-{index}")["id"])
            yield 2 * _SECOND
            self._dispatch(name, effect, step)
            yield self.random.randrange(2, 90) * _SECOND
            fails = step.tool == "test.run" and self.random.random() < 0.15
            self._acknowledge(name, effect, "error" if fails else "ok")
            yield self.random.randrange(1, 6) * _MINUTE
        self._end(name, session)

    def _end(self, name: str, session: str, status: str = "completed") -> None:
        self.agents[name].post(f"/sessions/{session}/end", {"status": status})

    def _ask(self, name: str, step: Step) -> tuple[str, str, UUID]:
        """Plan a call that waits for people; return its session, effect and gate."""
        session = self._open(name, f"{step.tool}: {step.why}")
        planned = self._plan(name, session, step, step.tool)
        return session, str(planned["id"]), UUID(planned["gate"]["id"])

    def _ask_and_run(self, name: str, step: Step, reason: str) -> Story:
        """A request that a person approves and the agent uses."""
        session, effect, gate = self._ask(name, step)
        wait_us = self.random.randrange(3, 50) * _MINUTE
        yield from self._vote(gate, "approve", reason, wait_us)
        yield 10 * _SECOND
        self._dispatch(name, effect, step)
        yield 40 * _SECOND
        self._acknowledge(name, effect)
        yield _MINUTE
        self._end(name, session)

    def _ask_and_stop(self, name: str, step: Step, reason: str) -> Story:
        """A request that a person denies; the agent withdraws it."""
        session, effect, gate = self._ask(name, step)
        yield from self._vote(gate, "deny", reason, 25 * _MINUTE)
        yield _MINUTE
        self.agents[name].post(f"/effects/{effect}/supersede", {})
        yield _MINUTE
        self._end(name, session, "cancelled")

    def _ask_and_wait(self, name: str, step: Step) -> Story:
        """A request that nobody answers in time."""
        session, _, gate = self._ask(name, step)
        yield _DAY + _MINUTE
        with transaction.atomic(durable=True):
            gates.lock_gate(Gate.objects.get(pk=gate))
        yield _MINUTE
        self._end(name, session, "failed")

    def _ask_and_leave(self, name: str, step: Step) -> Story:
        """A request that still waits."""
        self._ask(name, step)
        yield from ()

    def _send_twice(self) -> Story:
        """The same mail from two sessions, because the first did not say that it was sent."""
        mail = Step("mail.send", {"subject": "Invoice 8812", "recipients": 1}, {}, "It was asked.")
        for title, minutes in (("Send the invoice", 6), ("Send the invoice again", 0)):
            session = self._open("support-assistant", title)
            planned = self._plan("support-assistant", session, mail, "invoice")
            self._dispatch("support-assistant", str(planned["id"]), mail)
            yield 30 * _SECOND
            self._acknowledge("support-assistant", str(planned["id"]))
            yield _SECOND
            self._end("support-assistant", session)
            yield minutes * _MINUTE

    def _run_without_permission(self) -> Story:
        """A deletion that waited for people and was reported as done."""
        delete = Step("db.delete", {"table": "sessions", "rows": 240}, {}, "They are expired.")
        session, effect, _ = self._ask("data-steward", delete)
        yield 4 * _MINUTE
        key = Effect.objects.values_list("session__key", "effect_key").get(pk=effect)
        self.agents["data-steward"].post(
            "/events",
            [
                {"id": f"log-{n}", "kind": kind, "session": key[0], "effect_key": key[1]} | more
                for n, (kind, more) in enumerate(
                    (
                        ("effect.dispatched", {}),
                        ("effect.acknowledged", {"outcome": "ok"}),
                    )
                )
            ],
        )
        yield _MINUTE
        self._end("data-steward", session)

    def _use_exemption(self) -> Story:
        """An hour in which pushes of the release need no approval."""
        with transaction.atomic(durable=True):
            exemptions.create_exemption(
                self.project,
                ends_at_us=now_us() + _HOUR,
                user=self.members["sample-olga"].user,
                step_up="typed_digest",
                password_at_us=now_us(),
                tool="git.push",
                rule="push-to-main",
                reason="The release train, OPS-71.",
            )
        yield 5 * _MINUTE
        target = {"repository": "web-shop", "ref": "main"}
        push = Step("git.push", {"commits": 1, "issue": "OPS-71"}, target, "The release train.")
        session = self._open("code-fixer", "Release 3.110")
        planned = self._plan("code-fixer", session, push, "release")
        self._dispatch("code-fixer", str(planned["id"]), push)
        yield 20 * _SECOND
        self._acknowledge("code-fixer", str(planned["id"]))
        self._end("code-fixer", session)

    def _resolve_unknown(self) -> Story:
        """A refund without an answer of the bank, which a person looks up."""
        refund = Step("payment.refund", {"order": "41160", "amount": 60}, {}, "Wrong size.")
        session = self._open("support-assistant", "Refund order 41160")
        effect = str(self._plan("support-assistant", session, refund, "refund")["id"])
        self._dispatch("support-assistant", effect, refund)
        yield 30 * _SECOND
        body = {"attempt": 1, "reason": "timeout"}
        self.agents["support-assistant"].post(f"/effects/{effect}/fail", body)
        yield _MINUTE
        self._end("support-assistant", session, "failed")
        yield 2 * _HOUR
        version = Effect.objects.values_list("version", flat=True).get(pk=effect)
        resolved = resolve_effect(
            UUID(effect),
            self.members["sample-olga"],
            ResolutionInput(
                answer="happened",
                rationale="The bank's statement of today has it.",
                seen_version=version,
                reference="statement 2231, line 4",
                evidence="Booked once, with the amount of 60.",
                insists=True,
                step_up="typed_digest",
                password_at_us=now_us(),
                password_for="this",  # noqa: S106 - which answer it was for
            ),
        )
        if resolved.refusal is not None:
            raise ChangeRefused(f"The sample is wrong: {resolved.refusal}")

    def _repeat_tests(self) -> Story:
        """A session that runs the same failing test again and again, and still does."""
        session = self._open("code-fixer", "SHOP-238: a test fails only on Mondays")
        step = Step("test.run", {"suite": "calendar"}, {"repository": "web-shop"}, "Once more.")
        for number in range(12):
            effect = str(self._plan("code-fixer", session, step, f"test-{number}")["id"])
            self._dispatch("code-fixer", effect, step)
            yield 70 * _SECOND
            self._acknowledge("code-fixer", effect, "error")
            yield 20 * _SECOND

    def _lose_outcome(self) -> Story:
        """A restart that began and was never reported: the session is stuck."""
        session = self._open("ops-watch", "The queue of worker-7 grows")
        refund = Step("mail.send", {"subject": "Delay of orders", "recipients": 6}, {}, "Tell ops.")
        effect = str(self._plan("ops-watch", session, refund, "notice")["id"])
        self._dispatch("ops-watch", effect, refund)
        yield from ()

    def _vote(self, gate: UUID, answer: str, reason: str, wait_us: int) -> Story:
        """Vote `wait_us` after the request as a sample reviewer who opened and read it."""
        reading_us = self.random.randrange(20, 100) * _SECOND
        yield wait_us - reading_us
        row = Gate.objects.select_related("effect__repository").get(pk=gate)
        warnings = list_warnings(load_request_checks(row, row.effect))
        shown = ShownGate(row.version, row.digest, build_card(row).sha256, True, now_us(), warnings)
        voter = self.members[self.random.choice(("sample-rita", "sample-sam"))]
        form_token.record_gate_view(row, voter)
        yield reading_us
        with transaction.atomic(durable=True):
            result = votes.cast_vote(
                row,
                voter,
                answer,
                reason,
                shown,
                step_up="typed_digest",
                password_at_us=now_us(),
                password_for="this",  # noqa: S106 - which answer it was for
            )
        if result.refusal is not None:
            raise ChangeRefused(f"The sample is wrong: {result.refusal[1]}")


def _fill_step(step: Step, number: str) -> Step:
    """Put the number into every text of a step."""

    def fill(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value.replace("{n}", number) if isinstance(value, str) else value
            for name, value in values.items()
        }

    return step._replace(arguments=fill(step.arguments), target=fill(step.target))
