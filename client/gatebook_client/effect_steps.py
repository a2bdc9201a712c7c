"""The steps of an effect, one by one: plan, wait, dispatch, acknowledge or fail, and evidence.

`perform` takes them all in one process. These are for programs whose steps happen elsewhere: hooks
of a coding agent, a webhook, a job that begins where an earlier one had to wait. No step
but `wait` waits (`NotYet` says for what), and each may run in a process of its own: an effect is
named by its id or handle, by its key, or by the id of its call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gatebook_client import effect_keys, waiting
from gatebook_client.attempts import REFUSED_REASONS, EffectRequest
from gatebook_client.effects import Effects
from gatebook_client.errors import NotYet, PermissionRefused, Refused, SessionEnded
from gatebook_client.http import AsyncHttpClient
from gatebook_client.types import (
    ENDED,
    Dispatched,
    EffectResult,
    Json,
    PlannedEffect,
    Result,
    Verdict,
)
from gatebook_client.waiting import Limits

EffectReference = str | PlannedEffect | Dispatched | EffectResult
_DO_NOT_WAIT = 0.0
_UNSENT: Any = object()


class EffectSteps:
    """The steps as methods of a session.

    Each raises ServerUnavailable, Refused, LeaseLost and SessionEnded. An effect is given as what
    an earlier step returned, as its id or handle, or by `key` or `call_id`. A call id that several
    effects of the session share is refused.
    """

    id: str
    process: str
    status: str
    http: AsyncHttpClient
    _effects: Effects
    _names: effect_keys.CallCounter
    _on_wait: Callable[[str, Json], object]

    async def check_active(self) -> None:
        """Raise unless this process may still begin an effect."""
        raise NotImplementedError

    async def plan(
        self,
        /,
        tool: str,
        arguments: Any,
        *,
        target: Mapping[str, str] | None = None,
        key: str = "",
        call_id: str = "",
        ordinal: int = 0,
        free_text: Sequence[str] = (),
        meta: Mapping[str, Any] | None = None,
        compensates: str = "",
        **plan: Any,
    ) -> PlannedEffect:
        """Plan an effect before it happens, and return it with its permission.

        The same key plans the same effect; so does the same `call_id` with the same arguments and
        `ordinal`. Without both, the key is derived as `perform` derives it. `plan` may contain
        task, turn, why, preconditions, parent_effect. `compensates` is the id of the effect to
        undo.
        Raises NotYet while a stop, the pace or a circuit breaker keeps plans out.
        """
        await self.check_active()
        if self.status in ENDED and not compensates:
            raise SessionEnded(self.status)
        arguments = effect_keys.canonical(arguments)
        more = {"target": target, "meta": meta, "free_text": list(free_text), **plan}
        body: Json = {name: value for name, value in more.items() if value} | {
            "tool": tool,
            "arguments": arguments,
        }
        if call_id:
            body |= {"call_id": call_id, "ordinal": ordinal}
        if key:
            body["effect_key"] = key
        elif not call_id:
            digest = effect_keys.compute_call_digest(tool, arguments, free_text)
            counted = self._names.take(f" {digest} {compensates}")
            body["effect_key"] = effect_keys.effect_key(tool, digest, counted)
        request = EffectRequest(tool, arguments, _act_elsewhere, body, compensates=compensates)
        request.limits = Limits.from_now(_DO_NOT_WAIT)
        return PlannedEffect.from_json(await self._effects.send_plan(request), self.http.url)

    async def find_effect(
        self, effect: EffectReference = "", *, key: str = "", call_id: str = ""
    ) -> PlannedEffect:
        """Return an effect of the session as it is now. Refused with 404 if there is none."""
        identity = _get_id(effect)
        if identity:
            stored = (await self.http.get(f"/effects/{identity}")).body
            return PlannedEffect.from_json(stored, self.http.url)
        if not key and not call_id:
            raise ValueError("Name the effect: by its id or handle, by key, or by call_id.")
        items = (
            await self.http.get(
                "/effects", session=self.id, effect_key=key, call_id=call_id, limit=2
            )
        ).body["items"]
        if not items:
            detail = f"The session has no effect {key or call_id}. Plan it first"
            raise Refused(404, {"code": "not_found", "detail": detail})
        if len(items) > 1:
            detail = "Several effects have this call id. Name the effect by its id or key"
            raise Refused(409, {"code": "CALL_REUSED", "detail": detail})
        return PlannedEffect.from_json(items[0], self.http.url)

    async def wait(
        self,
        effect: EffectReference = "",
        *,
        key: str = "",
        call_id: str = "",
        wait_s: float | None = None,
    ) -> PlannedEffect:
        """Wait until people have approved an effect, and return it.

        Calls `on_wait` before the wait, like `perform`.
        Raises PermissionRefused if they did not, NotYet after `wait_s`.
        """
        planned = await self.find_effect(effect, key=key, call_id=call_id)
        if planned.permission == "pending" or planned.effect_json.get("gate"):
            limits = Limits.from_now(wait_s)
            if planned.answer == "wait" and planned.permission == "pending":
                waiting.report_gate(self._effects.session, planned.effect_json, self._on_wait)
            if planned.answer in ("wait", "blocked"):
                await waiting.wait_for_permission(
                    self._effects.session, planned.effect_json, limits
                )
                planned = await self.find_effect(planned)
        if planned.answer == "blocked":
            raise PermissionRefused(planned.effect, "refused")
        if planned.answer == "wait":
            sentence = f"{planned.handle} has no permission yet; plan it again."
            raise NotYet(sentence, planned.effect, reason="people")
        return planned

    async def dispatch(
        self,
        effect: EffectReference = "",
        *,
        key: str = "",
        call_id: str = "",
        arguments: Any = _UNSENT,
        free_text: Sequence[str] = (),
        preconditions: Mapping[str, Any] | None = None,
        replays: int = 0,
    ) -> Dispatched:
        """Use the permission of an effect for its next attempt: act only after this returns.

        Pass the `arguments` that will run, and Gatebook compares them with the plan; without them
        the attempt is bound to the planned intent. Raises NotYet while permission is missing or an
        earlier request may still be under way, PermissionRefused if it was refused, and Refused
        with the code ALREADY_DISPATCHED if an attempt was begun before: ask for its `verdict`.
        """
        planned = await self.find_effect(effect, key=key, call_id=call_id)
        body: Json = {"process": self.process} | self._effects.epoch_json()
        if arguments is _UNSENT:
            body["intent_digest"] = planned.intent_digest
        else:
            body["arguments"] = effect_keys.canonical(arguments)
        more = {"free_text": list(free_text), "preconditions": preconditions, "replays": replays}
        body |= {name: value for name, value in more.items() if value}
        request = EffectRequest(
            planned.tool, None, _act_elsewhere, {"effect_key": planned.effect_key}
        )
        request.limits = Limits.from_now(_DO_NOT_WAIT)
        try:
            response = await self._effects.retry_while_paused(
                request, lambda: self.http.post(f"/effects/{planned.effect}/dispatch", body)
            )
        except Refused as refusal:
            raise await self._explain_refusal(planned, refusal) from refusal
        return Dispatched.from_json(response.body)

    async def _explain_refusal(self, planned: PlannedEffect, refusal: Refused) -> Exception:
        """Return the error for a refused dispatch."""
        verdict = refusal.problem.get("verdict")
        decided = Verdict.from_json(verdict if isinstance(verdict, dict) else {}, planned.effect)
        if refusal.code == "GATE_PENDING" and planned.gate:
            gate = (await self.http.get(f"/gates/{planned.gate}")).body
            return waiting.build_not_yet(self._effects.session, planned.effect_json, gate)
        if refusal.code in ("GATE_DENIED", "GATE_EXPIRED") or refusal.reason in REFUSED_REASONS:
            return PermissionRefused(planned.effect, refusal.reason or "denied")
        if decided.answer == "wait":
            return NotYet(
                f"{planned.handle}: {decided.sentence or refusal.sentence}",
                planned.effect,
                reason=waiting.REASON_OF_VERDICT.get(decided.reason, "in_flight_window"),
                until_us=decided.until_us,
                gate=planned.gate,
                gate_url=planned.gate_url,
            )
        return refusal

    async def acknowledge(
        self,
        effect: EffectReference = "",
        *,
        key: str = "",
        call_id: str = "",
        attempt: int = 0,
        outcome: str = "ok",
        result: Any = None,
        reference: str = "",
    ) -> EffectResult:
        """Report that the dispatched attempt happened: outcome ok, error or unknown.

        `attempt` is the newest by default. A report that cannot be sent now is sent by the next
        call of this session.
        """
        await self._effects.send_unsent_reports()
        named, attempt = await self._find_attempt(effect, key, call_id, attempt)
        answer = await self._effects.acknowledge(
            named, attempt, Result(outcome, reference, result), f"attempt {attempt}"
        )
        return EffectResult.from_json(answer.body, result)

    async def fail(
        self,
        effect: EffectReference = "",
        *,
        key: str = "",
        call_id: str = "",
        attempt: int = 0,
        reason: str = "error",
        detail: str = "",
    ) -> EffectResult:
        """Report that the dispatched attempt failed.

        `rejected`: nothing happened. `timeout`, `error`: the outcome is unknown.
        """
        await self._effects.send_unsent_reports()
        named, attempt = await self._find_attempt(effect, key, call_id, attempt)
        answer = await self._effects.send_failure(named, attempt, reason, detail)
        return EffectResult.from_json(answer.body)

    async def _find_attempt(
        self, effect: EffectReference, key: str, call_id: str, attempt: int
    ) -> tuple[str, int]:
        """Return the id of an effect and the number of the attempt to report on."""
        if isinstance(effect, Dispatched):
            return effect.effect, attempt or effect.attempt
        if attempt and _get_id(effect):
            return _get_id(effect), attempt
        stored = await self.find_effect(effect, key=key, call_id=call_id)
        return stored.effect, attempt or stored.attempt or 1

    async def result(
        self, effect: EffectReference = "", *, key: str = "", call_id: str = ""
    ) -> EffectResult:
        """Return the stored result of an effect that this agent planned.

        Refused with the code NO_RESULT while there is none.
        """
        named = _get_id(effect) or (await self.find_effect(key=key, call_id=call_id)).effect
        return EffectResult.from_stored((await self.http.get(f"/effects/{named}/result")).body)

    async def verdict(
        self, effect: EffectReference = "", *, key: str = "", call_id: str = ""
    ) -> Verdict:
        """Return what may be done now with an effect that may have happened."""
        named = _get_id(effect) or (await self.find_effect(key=key, call_id=call_id)).effect
        return await self._effects.verdict(named)

    async def report(
        self,
        /,
        kind: str,
        *,
        effect: EffectReference = "",
        key: str = "",
        call_id: str = "",
        event_id: str = "",
        **fields: Any,
    ) -> Json:
        """Report a fact after the event, as evidence that permits nothing; return its result.

        `kind` is one of docs/reference/api.md, such as effect.acknowledged; `fields` are those of
        the kind, and `occurred_us`, `attempt`. The same `event_id` reports the same fact once. For
        effect.planned, `key` or `call_id` names a new effect; other kinds name a stored one.
        Raises Refused if the fact is not recorded.
        """
        item: Json = {"id": event_id or effect_keys.new_key(), "kind": kind, "session": self.id}
        if kind == "effect.planned":
            named = {"effect_key": key, "call_id": call_id}
            item |= {name: value for name, value in named.items() if value}
        elif key:
            item["effect_key"] = key
        elif effect or call_id:
            item["effect_key"] = (await self.find_effect(effect, call_id=call_id)).effect_key
        item |= {name: value for name, value in fields.items() if value is not None}
        recorded: Json = (await self.http.post("/events", [item], keyless=True)).body["results"][0]
        if recorded.get("status") not in ("created", "duplicate"):
            raise Refused(422, recorded)
        return recorded


def _get_id(effect: EffectReference) -> str:
    return effect if isinstance(effect, str) else effect.effect


def _act_elsewhere(_remote_key: str) -> object:
    raise AssertionError("The steps of an effect do not act.")
