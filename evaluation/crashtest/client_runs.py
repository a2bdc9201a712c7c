"""W1 with the Python client as the agent, used as docs/reference/client.md shows.

Every life is a process that SIGKILL ends. The agent may die after every answer of Gatebook
and after every request to the remote. Its waits move the injected clock.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import gatebook_client as gatebook
import httpx

from evaluation.crashtest.agent_crashes import PERSON
from evaluation.crashtest.checker import Findings
from evaluation.crashtest.contention import answer_gate
from evaluation.crashtest.domain import Case
from evaluation.crashtest.remote import LostAnswer, Oracle, Rejected, Remote
from evaluation.crashtest.runner import RunContext, run_killed
from evaluation.crashtest.schedules import Choices, explore
from evaluation.crashtest.server import Installation

MOST_TURNS: Final = 12
_US: Final = 1_000_000
PROBED: Final = frozenset({"idempotency_key", "transactional", "probeable"})


def crash_by_killing(
    installation: Installation, at: Oracle, cases: Sequence[Case], *, crashes: int = 1
) -> Findings:
    """Run every schedule of at most `crashes` deaths and every adversary choice for the first request."""
    findings, log = Findings(), at.log()
    installation.get_reviewer(PERSON)  # sign in once, before processes fork
    context = RunContext("client", at, installation.clock, _make_no_substrate)
    for case in cases:

        def run(choices: Choices, case: Case = case) -> str:
            world = context.world()
            live = partial(_run_life, installation, at, case, world)
            run_killed(live, choices, f"{case.name}, {world}")
            return world

        for choices, world in explore(crashes, 1, run, every=False):
            line = f"the client on {installation.vendor} · {case.name} · {choices.replay}"
            findings.check_run(log, world, case, line)
    log.close()
    return findings


def _make_no_substrate(*_arguments: Any) -> Any:
    raise NotImplementedError


class _TickingTransport(httpx.BaseTransport):
    """An HTTP transport that may kill the agent after every answer, and logs each verdict.

    A person approves every pending gate, and the agent may die before or after the vote.
    """

    def __init__(
        self, installation: Installation, choices: Choices, remote: Remote, life: int
    ) -> None:
        self._inner = httpx.HTTPTransport()
        self._house, self._choices, self._remote, self._life = installation, choices, remote, life

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        answer.read()
        if request.url.path.endswith("/verdict") and answer.status_code == 200:
            content = answer.json()
            if content["effect"]["effect_key"] == "work":
                note = {
                    "answer": content["verdict"],
                    "reason": content["reason"],
                    "row": content["row"],
                    "step": "work",
                }
                view = f"{content['effect']['state']} {content['effect'].get('outcome')} {content['row']}"
                self._remote.note(kind="verdict", life=self._life, view=view, **note)
        if (
            request.method == "GET"
            and "/gates/" in request.url.path
            and answer.json()["status"] == "pending"
        ):
            answer_gate(self._house.get_reviewer(PERSON), answer.json()["id"], "approve")
            self._choices.tick("a person approved")
        if request.method == "POST" and not request.url.path.endswith(
            ("/heartbeats", "/renew", "/release")
        ):
            self._choices.tick(f"after {request.url.path}")
        return answer


def _run_life(
    installation: Installation, at: Oracle, case: Case, world: str, choices: Choices, life: int
) -> None:
    """Run the program of a client user: recover, perform, checkpoint."""
    remote = Remote(at, world, choices)
    if life > 1 and case.away_s:
        installation.clock.advance_to(installation.clock.now_us() + case.away_s * _US)
        remote.settle(long=True)

    def sleep(seconds: float) -> None:
        installation.clock.advance_to(installation.clock.now_us() + int(seconds * _US))
        remote.settle()

    def act(remote_key: str) -> gatebook.Result:
        try:
            return gatebook.Result(reference=remote.execute(case.remote, "work", remote_key))
        except LostAnswer:
            raise TimeoutError from None
        except Rejected:
            raise gatebook.Rejected("no") from None

    def probe(attempt: gatebook.AttemptInfo) -> str | None:
        return remote.probe("work", attempt.remote_key)

    def cancel(attempt: gatebook.AttemptInfo, _remote_key: str) -> gatebook.Result:
        return gatebook.Result(
            reference=remote.cancel("work", attempt.remote_key) or "nothing to cancel"
        )

    means: dict[str, Any] = {"probe": probe if case.remote in PROBED else None}
    if case.name == "compensable by key":
        means["compensate"] = gatebook.Undo("rig.cancel", cancel)
    session = gatebook.session(
        f"http://127.0.0.1:{installation.port}",
        installation.token,
        key=world,
        takeover=True,
        sleep=sleep,
        transport=_TickingTransport(installation, choices, remote, life),
    )
    with session:
        if session.status in ("completed", "failed", "cancelled"):
            return  # the previous process died after it ended its work and logged the claim
        session.register(case.tool, **means)
        if life > 1:
            remote.note(kind="safe", life=life, safe=session.resume()["safe"], step="work")
        remote.note(kind="end", life=life, step="work", **_work_to_claim(session, case, act, means))
        session.checkpoint("done")


def _work_to_claim(
    session: gatebook.Session, case: Case, act: Any, means: dict[str, Any]
) -> dict[str, str]:
    for _ in range(MOST_TURNS):
        try:
            session.recover(acts={"work": act})
            plan: dict[str, Any] = {"preconditions": {"etag": "7"}} if case.preconditions else {}
            session.perform(case.tool, {"step": "work"}, act, key="work", **means, **plan)
        except (TimeoutError, gatebook.Rejected):
            continue
        except gatebook.HumanDecisionRequired as need:
            return {"claim": "handed over", "reason": need.verdict.reason}
        return {"claim": "done", "reason": "DONE"}
    return {"claim": "", "reason": "the run did not end"}
