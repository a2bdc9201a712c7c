"""Finds the effects that hooks without call ids reported of the calls in a transcript.

Gemini CLI names a call in its transcript and not in its hooks. So a call meets an effect by what
both have: the session, the tool, the input, and the time. The hook before a call comes after the
model made the call and before its result, on the clock of one machine. A call that ran is the
attempt that began in this time; of several equal calls the first has the first attempt. A command
that Gatebook rewrote contains the key of its effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hooks.coding_agents.call_intents import SHELL_TOOLS
from hooks.coding_agents.rewritten_calls import find_effect_key
from importers.api_client import ImportClient
from importers.trajectory import Call, Json, Trajectory

KEY_START: Final = "call:"  # of effects that a hook without a call id planned
_REDACTED: Final = re.compile(r"\[redacted:[a-z0-9_]{1,40}:[0-9a-f]{12}\]")


@dataclass(frozen=True, slots=True)
class Meeting:
    """The effect that another source reported of a call.

    `attempt` is None where the call is no attempt of it. `session` is the key of its session.
    """

    session: str
    effect: dict[str, Json]
    attempt: int | None


@dataclass(slots=True)
class _HookedEffect:
    """A planned effect: what never changes of it."""

    id: str
    tool: str
    input: Json
    is_shell: bool
    planned_us: int


@dataclass(slots=True)
class HookedCalls:
    """The effects of one client session whose hooks have no call ids."""

    client: ImportClient
    program: str  # the format of the transcript, which is the name of the client too
    session_key: str
    session: str  # its id
    _effects: dict[str, _HookedEffect] = field(default_factory=dict)  # in the order of their plans
    _known: set[str] = field(default_factory=set)

    def load_new(self) -> None:
        """Load the plans that hooks reported since the last time."""
        new, seen = list[_HookedEffect](), set[str]()
        for effect in self.client.iterate_effects(self.session):
            identity = str(effect["id"])
            if identity in self._known:
                break  # the newest come first
            seen.add(identity)
            if not str(effect["effect_key"]).startswith(KEY_START):
                continue
            plan = self.client.load_plan(identity)
            meta = (plan or {}).get("meta")
            if plan is None or not isinstance(meta, dict) or "planned_at_us" not in plan:
                continue
            tool, arguments = str(meta.get("client_tool")), plan.get("arguments")
            is_shell = tool in SHELL_TOOLS.get(self.program, ())
            if is_shell and isinstance(arguments, dict):
                arguments = arguments.get("command")
            new.append(_HookedEffect(identity, tool, arguments, is_shell, plan["planned_at_us"]))
        # Only now: if Gatebook went away in between, the next time begins again.
        self._known |= seen
        self._effects |= {effect.id: effect for effect in reversed(new)}

    def find(self, trajectory: Trajectory, call: Call) -> Meeting | None:
        """Return the effect of a call; None if no hook reported it."""
        command = call.arguments.get("command") if isinstance(call.arguments, dict) else None
        key = find_effect_key(command) if isinstance(command, str) else ""
        if key:
            effect = self.client.find_effect(self.session, key)
            if effect is None:
                return None
            return Meeting(self.session_key, effect, effect.get("attempt"))
        same = [effect for effect in self._effects.values() if _is_of_call(effect, call)]
        if not same or call.occurred_us is None:
            return None
        loaded = {effect.id: self.client.load_effect(effect.id) for effect in same}
        attempts = _list_attempts(loaded)
        equal = [other for other in trajectory.calls if _is_of_call(same[0], other)]
        own = _assign_attempts(equal, call, attempts)
        if own is not None:
            return Meeting(self.session_key, loaded[own[1]], own[2])
        # It waited for people or was denied; what ran all the same has no attempt either.
        until = _get_end(call)
        early = [effect for effect in same if effect.planned_us <= until]
        if not call.is_refused:
            early = [effect for effect in early if not loaded[effect.id].get("attempts")]
        return Meeting(self.session_key, loaded[early[-1].id], None) if early else None


def _is_of_call(effect: _HookedEffect, call: Call) -> bool:
    if effect.tool != call.tool:
        return False
    sent = call.arguments
    if effect.is_shell and isinstance(effect.input, str):
        sent = sent.get("command") if isinstance(sent, dict) else sent
    return is_same_input(effect.input, sent)


def is_same_input(stored: Json, sent: Json) -> bool:
    """Return whether a stored value is the sent one, apart from secrets that were redacted."""
    if isinstance(stored, str) and isinstance(sent, str):
        if stored == sent:
            return True
        pattern = ".+".join(map(re.escape, _REDACTED.split(stored)))
        return _REDACTED.search(stored) is not None and bool(re.fullmatch(pattern, sent, re.DOTALL))
    if isinstance(stored, Mapping) and isinstance(sent, Mapping):
        return stored.keys() == sent.keys() and all(
            is_same_input(value, sent[name]) for name, value in stored.items()
        )
    if isinstance(stored, list) and isinstance(sent, list):
        return len(stored) == len(sent) and all(map(is_same_input, stored, sent))
    return bool(stored == sent)


def _list_attempts(loaded: Mapping[str, dict[str, Json]]) -> list[tuple[int, str, int]]:
    """Return when each attempt began, its effect and its number, in the order of time."""
    return sorted(
        (attempt["dispatched_at_us"], identity, attempt["attempt"])
        for identity, effect in loaded.items()
        for attempt in effect.get("attempts", ())
        if attempt.get("dispatched_at_us") is not None
    )


def _assign_attempts(
    equal_calls: Iterable[Call], call: Call, attempts: Iterable[tuple[int, str, int]]
) -> tuple[int, str, int] | None:
    """Return the attempt of a call: the first in its time that no earlier equal call has."""
    free = list(attempts)
    for other in equal_calls:
        begin, end = other.occurred_us, _get_end(other)
        # A refusal without a time must not get an attempt that began long after it.
        has_time = begin is not None and not (other.is_refused and end == float("inf"))
        own = next((item for item in free if has_time and (begin or 0) <= item[0] <= end), None)
        if other is call:
            return own
        if own is not None:
            free.remove(own)
    return None


def _get_end(call: Call) -> float:
    """Return when the result of a call was there; at any time if its source does not say."""
    finished_us = call.result.finished_us if call.result is not None else None
    return float("inf") if finished_us is None else finished_us
