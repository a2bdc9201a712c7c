"""After a crash: what every open effect of a session needs, done as far as it can be done here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatebook_client import waiting
from gatebook_client.attempts import Wish
from gatebook_client.effects import Effects, open_effects, plan_of
from gatebook_client.errors import NeedsPerson, NoLeave, NotYet, Rejected
from gatebook_client.values import Act, Json, Probe, Undo, Verdict


@dataclass(frozen=True)
class Means:
    """What was registered for a tool. `act` gets the plan's arguments and the attempt's remote key."""

    act: Any = None
    probe: Probe | None = None
    undo: Undo | None = None


@dataclass(frozen=True)
class Step:
    """What one open effect needed, and what was done: `did` is one of the words of `Recovery`."""

    effect: str
    handle: str
    effect_key: str
    tool: str
    did: str
    verdict: Verdict
    because: str = ""

    def __str__(self) -> str:
        return f"{self.handle} {self.tool} ({self.effect_key}): {self.did}. {self.because}".rstrip()


@dataclass
class Recovery:
    """What `recover()` found and did, effect by effect.

    `found`: it had happened, and says so now. `replayed`, `undone`: done here. `refused`: people or the remote said no.
    `due`: it did not happen, and may be done when the program comes to it. `waiting`: nothing may be done yet.
    `unresolved`: a person decides.
    """

    steps: list[Step] = field(default_factory=list)

    def that(self, did: str) -> list[Step]:
        """Those for which just that was done."""
        return [step for step in self.steps if step.did == did]

    @property
    def unresolved(self) -> list[Step]:
        """Those that a person decides."""
        return self.that("unresolved")

    @property
    def due(self) -> list[Step]:
        """Those that did not happen, and may."""
        return self.that("due")

    @property
    def safe(self) -> bool:
        """Whether the work may go on: nothing waits, and nothing needs a person."""
        return not self.unresolved and not self.that("waiting")

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "Nothing was open."


def recover(effects: Effects, means: Mapping[str, Means], acts: Mapping[str, Act], until: float | None) -> Recovery:
    """Settle what earlier processes left open. `acts` says, by effect key, how one is done again."""
    effects.tell_untold()
    said, seen = Recovery(), set[str]()
    for effect in open_effects(effects):
        if effect["id"] not in seen:
            seen.add(effect["id"])
            said.steps.append(_settle(effects, effect, means.get(str(effect.get("tool")), Means()), acts, until))
    return said


def _settle(effects: Effects, told: Json, means: Means, acts: Mapping[str, Act], until: float | None) -> Step:
    effect, key = str(told["id"]), str(told.get("effect_key") or "")
    verdict = effects.verdict(effect)

    def step(did: str, because: str = "") -> Step:
        said = because or verdict.sentence or verdict.reason
        return Step(effect, str(told.get("handle") or ""), key, str(told.get("tool") or ""), did, verdict, said)

    plan = plan_of(effects, effect) if verdict.answer not in ("skip", "execute", "ask") else {}
    wish = Wish(str(told.get("tool") or ""), plan.get("arguments"), _nothing, {"effect_key": key})
    wish.probe, wish.undo, wish.until = means.probe, means.undo, until
    act = acts.get(key) or _again(means, plan)
    try:
        while True:
            effects.holder.guard()
            if verdict.answer == "compensate" or verdict.reason == "COMP_RESUME":
                effects.cancel(verdict, wish)
                return step("undone")
            if verdict.answer == "probe":
                verdict = effects.look(verdict, wish)
                if verdict.answer == "probe":
                    waiting.pause(effects.holder, waiting.PAUSE_S, until, f"{wish.name} is looked for", effect)
            elif verdict.answer == "wait" and verdict.reason == "GATE_PENDING":
                return step("due", verdict.sentence or "people are asked; nothing was begun")
            elif verdict.answer == "wait":
                verdict = effects.wait_out(verdict, wish)
            elif verdict.answer == "replay" and act is not None and not verdict.needs_leave:
                wish.act = act
                wish.plan |= {name: plan[name] for name in ("free_text", "preconditions") if plan.get(name)}
                if effects.act_on(verdict, wish) is not None:
                    return step("replayed")
                verdict = effects.verdict(effect)
            elif verdict.answer == "skip":
                closed = verdict.reason in ("GATE_DENIED", "GATE_EXPIRED", "ATTEMPTS_SPENT")
                return step("refused" if closed else "found")
            elif verdict.answer in ("execute", "ask", "replay"):
                return step("due")
            else:
                return step("unresolved")
    except NeedsPerson as need:
        return step("unresolved", str(need))
    except NotYet as later:
        return step("waiting", str(later))
    except (NoLeave, Rejected) as no:
        return step("refused", str(no))


def _again(means: Means, plan: Json) -> Act | None:
    """How a registered tool is used once more as it was planned. Secrets are not in the book: such a plan is not."""
    if means.act is None or "arguments" not in plan or plan.get("redactions"):
        return None
    return lambda remote_key: means.act(plan["arguments"], remote_key)


def _nothing(_remote_key: str) -> object:
    raise AssertionError("recover() acts only with an act that was given to it")
