"""W1 with the agents' own client as the agent, used as docs/reference/client.md says, every life a process
that SIGKILL ends.

It may die after every answer of Gatebook and after every request of the remote. Its waits move the
injected clock.
"""

import os
import signal
import traceback
from collections.abc import Sequence
from typing import Any, Final

import gatebook_client as gatebook
import httpx

from evaluation.crashtest.agent_crashes import PERSON
from evaluation.crashtest.checker import Found
from evaluation.crashtest.contention import answer as say
from evaluation.crashtest.domain import Case
from evaluation.crashtest.remote import LostAnswer, Oracle, Rejected, Remote
from evaluation.crashtest.runner import MOST_LIVES, Ground
from evaluation.crashtest.schedules import Choices, explore
from evaluation.crashtest.server import House

MOST_TURNS: Final = 12
_US: Final = 1_000_000
LOOKED_UP: Final = frozenset({"idempotency_key", "transactional", "probeable"})


def by_killing(house: House, at: Oracle, cases: Sequence[Case], *, crashes: int = 1) -> Found:
    """Every schedule of at most so many deaths, with every choice of the adversary for the first
    request."""
    found, log = Found(), at.log()
    house.person(PERSON)  # signed in once, and not by every process anew
    ground = Ground("client", at, house.clock, _none)
    for case in cases:

        def run(choices: Choices, case: Case = case) -> str:
            world = ground.world()
            _lives(house, at, case, world, choices)
            return world

        for choices, world in explore(crashes, 1, run, every=False):
            line = f"the client on {house.vendor} · {case.name} · {choices.replay}"
            found.judge(log, world, case, line)
    log.close()
    return found


def _none(*_told: Any) -> Any:
    raise NotImplementedError


def _lives(house: House, at: Oracle, case: Case, world: str, choices: Choices) -> None:
    for life in range(1, MOST_LIVES + 1):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _child(house, at, case, world, choices, life, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            spent = told.read()
        _, status = os.waitpid(child, 0)
        taken = [(answer, options) for answer, options in zip(spent[::2], spent[1::2], strict=True)]
        choices.taken += taken
        choices.tricks -= sum(options > 2 for _, options in taken)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError(
                f"{case.name}, {world}: a life ended with {status}; {choices.replay}"
            )
        choices.crashes -= 1
    raise RuntimeError(f"{world}: more deaths than a schedule holds")


def _child(
    house: House, at: Oracle, case: Case, world: str, choices: Choices, life: int, writing: int
) -> None:
    code = 1
    try:
        left = list(choices.line)[len(choices.taken) :]
        own = _Telling(
            choices.crashes,
            choices.tricks,
            False,
            left,
            lambda: os.kill(os.getpid(), signal.SIGKILL),
        )
        own.pipe = writing
        _live(house, at, case, world, own, life)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


class _Telling(Choices):
    """Choices of a process that dies: each is told before it takes effect."""

    pipe = -1

    def _take(self, options: int) -> int:
        answer = super()._take(options)
        os.write(self.pipe, bytes((answer, options)))
        return answer


class _Ticking(httpx.BaseTransport):
    """A death may follow every command's answer; what the verdicts said is noted in the oracle's
    log.

    A person says yes to whatever is waited for, and the agent may die before or after that.
    """

    def __init__(self, house: House, choices: Choices, remote: Remote, life: int) -> None:
        self._inner = httpx.HTTPTransport()
        self._house, self._choices, self._remote, self._life = house, choices, remote, life

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        answer.read()
        if request.url.path.endswith("/verdict") and answer.status_code == 200:
            told = answer.json()
            if told["effect"]["effect_key"] == "work":
                said = {
                    "answer": told["verdict"],
                    "reason": told["reason"],
                    "row": told["row"],
                    "step": "work",
                }
                view = f"{told['effect']['state']} {told['effect'].get('outcome')} {told['row']}"
                self._remote.note(kind="verdict", life=self._life, view=view, **said)
        if (
            request.method == "GET"
            and "/gates/" in request.url.path
            and answer.json()["status"] == "pending"
        ):
            say(self._house.person(PERSON), answer.json()["id"], "approve")
            self._choices.tick("a person has said yes")
        if request.method == "POST" and not request.url.path.endswith(
            ("/heartbeats", "/renew", "/release")
        ):
            self._choices.tick(f"after {request.url.path}")
        return answer


def _live(house: House, at: Oracle, case: Case, world: str, choices: Choices, life: int) -> None:
    """The program of a user of the client: recover, perform, checkpoint."""
    remote = Remote(at, world, choices)
    if life > 1 and case.away_s:
        house.clock.until(house.clock.now_us() + case.away_s * _US)
        remote.settle(long=True)

    def sleep(seconds: float) -> None:
        house.clock.until(house.clock.now_us() + int(seconds * _US))
        remote.settle()

    def act(remote_key: str) -> gatebook.Result:
        try:
            return gatebook.Result(reference=remote.execute(case.remote, "work", remote_key))
        except LostAnswer:
            raise TimeoutError from None
        except Rejected:
            raise gatebook.Rejected("no") from None

    def look(known: gatebook.AttemptInfo) -> str | None:
        return remote.probe("work", known.remote_key)

    def cancel(known: gatebook.AttemptInfo, _remote_key: str) -> gatebook.Result:
        return gatebook.Result(
            reference=remote.cancel("work", known.remote_key) or "nothing to cancel"
        )

    means: dict[str, Any] = {"probe": look if case.remote in LOOKED_UP else None}
    if case.name == "compensable by key":
        means["compensate"] = gatebook.Undo("rig.cancel", cancel)
    session = gatebook.session(
        f"http://127.0.0.1:{house.port}",
        house.token,
        key=world,
        takeover=True,
        sleep=sleep,
        transport=_Ticking(house, choices, remote, life),
    )
    with session:
        if session.status in ("completed", "failed", "cancelled"):
            return  # the process before this one died after it had ended its work, and noted how
        session.register(case.tool, **means)
        if life > 1:
            remote.note(kind="safe", life=life, safe=session.resume()["safe"], step="work")
        remote.note(kind="end", life=life, step="work", **_claim(session, case, act, means))
        session.checkpoint("done")


def _claim(
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
    return {"claim": "", "reason": "it came to no end"}
