"""Recovery after a crash: settle every open effect of a session as far as possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatebook_client import waiting
from gatebook_client.attempts import EffectRequest
from gatebook_client.effects import Effects, list_unsettled_effects, load_plan
from gatebook_client.errors import HumanDecisionRequired, PermissionRefused, Rejected, WaitTimeout
from gatebook_client.types import Act, Json, Probe, Undo, Verdict
from gatebook_client.waiting import Limits


@dataclass(frozen=True)
class ToolHandlers:
    """The functions registered for a tool.

    `act` gets the arguments of the plan and the remote key of the attempt.
    """

    act: Any = None
    probe: Probe | None = None
    undo: Undo | None = None


@dataclass(frozen=True)
class Step:
    """One open effect and what was done with it; `result` is explained in `Recovery`."""

    effect: str
    handle: str
    effect_key: str
    tool: str
    result: str
    verdict: Verdict
    because: str = ""

    def __str__(self) -> str:
        return (
            f"{self.handle} {self.tool} ({self.effect_key}): {self.result}. {self.because}".rstrip()
        )


@dataclass
class Recovery:
    """What `recover()` did with each open effect.

    Results: `found`: it had happened, and is recorded now. `replayed`, `undone`: it was repeated
    or compensated now. `refused`: people or the remote refused it. `due`: it did not happen, and
    may when the program reaches it. `waiting`: nothing may be done yet. `unresolved`: a person
    decides.
    """

    steps: list[Step] = field(default_factory=list)

    def steps_with(self, result: str) -> list[Step]:
        """Return the steps with this result."""
        return [step for step in self.steps if step.result == result]

    @property
    def unresolved(self) -> list[Step]:
        """The steps that a person decides."""
        return self.steps_with("unresolved")

    @property
    def due(self) -> list[Step]:
        """The steps whose effect did not happen, and may."""
        return self.steps_with("due")

    @property
    def safe(self) -> bool:
        """Whether work may continue: nothing waits and nothing needs a person."""
        return not self.unresolved and not self.steps_with("waiting")

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "Nothing was open."


async def recover(
    effects: Effects,
    handlers: Mapping[str, ToolHandlers],
    acts: Mapping[str, Act],
    limits: Limits,
) -> Recovery:
    """Settle what earlier processes left open.

    `acts` maps effect keys to the functions that repeat them.
    """
    await effects.send_unsent_reports()
    recovery, settled_ids = Recovery(), set[str]()
    for effect in await list_unsettled_effects(effects):
        if effect["id"] not in settled_ids:
            settled_ids.add(effect["id"])
            recovery.steps.append(
                await _settle(
                    effects,
                    effect,
                    handlers.get(str(effect.get("tool")), ToolHandlers()),
                    acts,
                    limits,
                )
            )
    return recovery


async def _settle(
    effects: Effects,
    effect_json: Json,
    handlers: ToolHandlers,
    acts: Mapping[str, Act],
    limits: Limits,
) -> Step:
    effect, key = str(effect_json["id"]), str(effect_json.get("effect_key") or "")
    verdict = await effects.verdict(effect)

    def step(result: str, because: str = "") -> Step:
        explanation = because or verdict.sentence or verdict.reason
        return Step(
            effect,
            str(effect_json.get("handle") or ""),
            key,
            str(effect_json.get("tool") or ""),
            result,
            verdict,
            explanation,
        )

    plan = (
        await load_plan(effects, effect) if verdict.answer not in ("skip", "execute", "ask") else {}
    )
    request = EffectRequest(
        str(effect_json.get("tool") or ""), plan.get("arguments"), _nothing, {"effect_key": key}
    )
    request.probe, request.undo, request.limits = handlers.probe, handlers.undo, limits
    act = acts.get(key) or _again(handlers, plan)
    try:
        while True:
            await effects.session.check_active()
            if verdict.answer == "compensate" or verdict.reason == "COMP_RESUME":
                await effects.undo_attempt(verdict, request)
                return step("undone")
            if verdict.answer == "probe":
                verdict = await effects.run_probe(verdict, request)
                if verdict.answer == "probe":
                    await waiting.sleep_or_raise(
                        effects.session,
                        waiting.PAUSE_S,
                        limits,
                        f"{request.name} is being probed",
                        effect,
                        reason="probe",
                    )
            elif verdict.answer == "wait" and verdict.reason == "GATE_PENDING":
                return step("due", verdict.sentence or "waiting for approval; nothing was begun")
            elif verdict.answer == "wait":
                verdict = await effects.wait_for_verdict(verdict, request)
            elif verdict.answer == "replay" and act is not None and not verdict.needs_permission:
                request.act = act
                request.plan |= {
                    name: plan[name] for name in ("free_text", "preconditions") if plan.get(name)
                }
                if await effects.execute_verdict(verdict, request) is not None:
                    return step("replayed")
                verdict = await effects.verdict(effect)
            elif verdict.answer == "skip":
                closed = verdict.reason in ("GATE_DENIED", "GATE_EXPIRED", "ATTEMPTS_SPENT")
                return step("refused" if closed else "found")
            elif verdict.answer in ("execute", "ask", "replay"):
                return step("due")
            else:
                return step("unresolved")
    except HumanDecisionRequired as error:
        return step("unresolved", str(error))
    except WaitTimeout as later:
        return step("waiting", str(later))
    except (PermissionRefused, Rejected) as no:
        return step("refused", str(no))


def _again(handlers: ToolHandlers, plan: Json) -> Act | None:
    """Return an act that repeats a planned call with its registered tool, or None.

    A plan with redactions cannot be repeated, because secrets are not stored.
    """
    if handlers.act is None or "arguments" not in plan or plan.get("redactions"):
        return None
    return lambda remote_key: handlers.act(plan["arguments"], remote_key)


def _nothing(_remote_key: str) -> object:
    raise AssertionError("recover() called an effect without a registered act")
