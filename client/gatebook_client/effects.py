"""Effects performed once: plan, wait for permission, attempt, or settle after a crash.

An effect that may have happened is repeated only if Gatebook's verdict allows it: as its next
attempt, with the key that the verdict names.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace

from gatebook_client import waiting
from gatebook_client.attempts import Attempts, EffectRequest
from gatebook_client.effect_keys import compute_call_digest
from gatebook_client.errors import HumanDecisionRequired, PermissionRefused, Refused, SessionEnded
from gatebook_client.types import ENDED, EffectResult, Json, Verdict, parse_probe_answer

# Suffixes of effect keys: a compensation before a redo, the redone effect, and the compensation of
# duplicates.
CANCEL, REDO, EXTRAS = ":cancel", ":redo", ":undo"
_OPEN: tuple[Json, ...] = (
    {"state": "dispatched"},
    {"state": "failed"},
    {"state": "acknowledged", "outcome": "unknown"},
    {"state": "planned"},
)


def _compensation_key(effect_key: object, suffix: str, attempt: int) -> str:
    """Return the effect key of the compensation of one attempt.

    Each attempt has its own, because the plan under the key names the attempt.
    """
    return f"{effect_key}{suffix}" if attempt <= 1 else f"{effect_key}{suffix}:{attempt}"


async def list_unsettled_effects(effects: Attempts) -> list[Json]:
    """List effects that may have happened, then planned ones; oldest first in each group."""
    return [
        effect for filters in _OPEN for effect in reversed(await _list_effects(effects, filters))
    ]


async def list_open_effects(effects: Attempts) -> list[Json]:
    """List effects that keep a session open.

    They may have happened, wait for people, or have permission to begin.
    """
    begun = [
        *await _list_effects(effects, {"state": "dispatched"}),
        *await _list_effects(effects, {"outcome": "unknown"}),
    ]
    planned = [
        effect
        for effect in await _list_effects(effects, {"state": "planned"})
        if effect.get("permission") in ("pending", "granted")
    ]
    by_id = {
        str(effect["id"]): effect
        for effect in (*begun, *planned)
        if effect.get("state") != "superseded"
    }
    return list(by_id.values())


async def _list_effects(effects: Attempts, filters: Json) -> list[Json]:
    """List the effects of the session that match the filters, newest first."""
    items: list[Json] = []
    after = ""
    while True:
        page = (
            await effects.session.http.get(
                "/effects", session=effects.session.id, limit=200, after=after, **filters
            )
        ).body
        items += page["items"]
        after = str(page.get("next") or "")
        if not after:
            return items


async def load_plan(effects: Attempts, effect: str) -> Json:
    """Load a plan; empty if another agent made it or if it is erased."""
    try:
        return (await effects.session.http.get(f"/effects/{effect}/plan")).body
    except Refused:
        return {}


@dataclass
class Effects(Attempts):
    """Performs the effects of one session."""

    _unanswered: dict[str, str] = field(default_factory=dict)  # effect ids by intent digest
    # Plans that never went further while their intent was open, by intent digest.
    _plan_ids: dict[str, list[str]] = field(default_factory=dict)

    async def perform(self, request: EffectRequest) -> EffectResult:
        """Perform an effect once and return its result.

        Raises the errors of errors.py, and the error of the act after reporting it.
        """
        await self.send_unsent_reports()
        if self.session.status in ENDED:
            done = await self._find_result_of_ended_session(request)
            if done is not None:
                return done
            # Only compensations are possible after the end.
            if not request.compensates:
                raise SessionEnded(self.session.status)
        return await self._plan_until_settled(request)

    async def _plan_until_settled(self, request: EffectRequest) -> EffectResult:
        while True:
            planned = await self.send_plan(request)
            result = await self._match_unanswered(planned, request) or await self._follow(
                planned, request
            )
            if result is not None:
                return result

    async def _find_result_of_ended_session(self, request: EffectRequest) -> EffectResult | None:
        """Return the result that an ended session recorded for a request, or None."""
        name = request.plan.get("effect_key")
        for effect in await _list_effects(
            self, {"effect_key": name} if name else {"tool": request.tool}
        ):
            if not await self._matches_request(effect, request):
                continue
            if effect["state"] == "compensated" and await self._is_redone(effect):
                request.plan["effect_key"] = f"{effect['effect_key']}{REDO}"
                return await self._find_result_of_ended_session(request)
            if effect["state"] == "compensated" or (
                effect["state"] == "acknowledged" and effect.get("outcome") != "unknown"
            ):
                return await self.load_result(effect)
        return None

    async def _matches_request(self, effect: Json, request: EffectRequest) -> bool:
        """Return whether an effect has the key of a request, and no plan known to differ."""
        # Gatebook derives the key of a call: call id, intent, ordinal.
        if "effect_key" not in request.plan:
            parts = str(effect["effect_key"]).split(":")
            if (":".join(parts[:-2]), parts[-1]) != (
                request.plan.get("call_id"),
                str(request.plan.get("ordinal")),
            ):
                return False
        plan, free_text = (
            await load_plan(self, str(effect["id"])),
            request.plan.get("free_text", ()),
        )
        if "arguments" not in plan or plan.get("redactions"):
            return bool(effect["tool"] == request.tool)
        wanted = compute_call_digest(request.tool, request.arguments, free_text)
        return compute_call_digest(str(effect["tool"]), plan["arguments"], free_text) == wanted

    async def send_plan(self, request: EffectRequest, effect_key: object = "") -> Json:
        """Plan the effect of a request, under its own key or `effect_key`; return the answer."""
        path = f"/effects/{request.compensates}/compensate" if request.compensates else "/effects"
        body = (
            request.plan
            | self.epoch_json()
            | ({} if request.compensates else {"session": self.session.id})
        )
        if effect_key:
            body = {
                name: value for name, value in body.items() if name not in ("call_id", "ordinal")
            }
            body["effect_key"] = effect_key
        answered = await self.retry_while_paused(
            request, lambda: self.session.http.post(path, body)
        )
        planned = answered.body
        if planned.get("same_calls") and planned.get("open_effect") not in request.reported_calls:
            request.reported_calls.add(planned.get("open_effect"))
            request.on_wait("same_call", planned)
        return planned

    async def load_unanswered(self, released_at_us: int | None) -> None:
        """Load the effects of earlier processes whose results their agent may not have received.

        Those are the open effects, and the effects done after `released_at_us`, when the previous
        process released its lease. If it did not, they are the effects after which nothing was
        begun. An agent whose call got no result asks again under a new call id; the first such
        call gets the existing effect.
        """
        done_effects = (
            await self.session.http.get(
                f"/sessions/{self.session.id}/resume", process=self.session.process
            )
        ).body["done"]
        unanswered = [
            effect
            for effect in done_effects
            if (
                effect["unheard"]
                if released_at_us is None
                else effect["changed_us"] > released_at_us
            )
        ]
        self._unanswered = {
            effect["intent_digest"]: effect["effect"]
            for effect in reversed(unanswered)
            if "intent_digest" in effect
        }
        for effect in await list_unsettled_effects(self):
            digest = str(effect.get("intent_digest") or "")
            if effect["state"] == "planned" and "gate" not in effect:
                self._plan_ids.setdefault(digest, []).append(str(effect["id"]))
            elif effect["state"] != "planned":
                self._unanswered[digest] = str(effect["id"])

    async def _match_unanswered(self, planned: Json, request: EffectRequest) -> EffectResult | None:
        """Return the earlier, unanswered effect that a new call repeats, or None."""
        digest, withdrawn = str(planned.get("intent_digest")), planned.get("state") == "superseded"
        earlier = self._unanswered.pop(digest, "")
        is_new_call = "call_id" in request.plan and (
            withdrawn or planned.get("answer") in ("proceed", "wait", "ambiguous")
        )
        if not earlier or earlier == planned["id"] or not is_new_call:
            return None
        effect = (await self.session.http.get(f"/effects/{earlier}")).body
        if effect.get("state") != "acknowledged" or effect.get("outcome") == "unknown":
            return None
        await self._withdraw(digest, request, "" if withdrawn else str(planned["id"]))
        return await self.load_result(effect)

    async def _withdraw(self, digest: str, request: EffectRequest, own: str) -> None:
        """Supersede plans that are not needed: the new one, and those of earlier processes."""
        if own:
            await self.retry_while_paused(
                request,
                lambda: self.session.http.post(f"/effects/{own}/supersede", self.epoch_json()),
            )
        for name in self._plan_ids.pop(digest, []) if "call_id" in request.plan else []:
            with suppress(Refused):  # it has permission by now
                await self.session.http.post(f"/effects/{name}/supersede", self.epoch_json())

    async def _follow(self, planned: Json, request: EffectRequest) -> EffectResult | None:
        """Act on the answer to a plan. Return None if the effect must be planned again."""
        effect, answer = str(planned["id"]), planned.get("answer")
        if answer == "proceed":
            return await self.dispatch(effect, request)
        if answer == "wait" and planned.get("permission") == "pending":
            waiting.report_gate(self.session, planned, request.on_wait)
            await waiting.wait_for_permission(self.session, planned, request.limits)
            return await self.dispatch(effect, request)
        if answer == "wait":
            await waiting.sleep_or_raise(
                self.session,
                waiting.PAUSE_S,
                request.limits,
                f"{request.name} has no permission yet",
                effect,
                reason="people",
            )
            return None
        if answer == "done":
            return await self._closed_result(planned, request)
        if answer == "ambiguous":
            return await self._settle_ambiguous(planned, request)
        raise await self._permission_error(planned)

    async def load_result(self, effect: Json) -> EffectResult:
        """Return the result of an effect that was done before, as Gatebook stored it.

        Without what was returned if another agent planned it, or if nothing was reported.
        """
        done = EffectResult.from_json(effect, already_done=True)
        try:
            stored = (await self.session.http.get(f"/effects/{done.effect}/result")).body
        except Refused:
            return done
        return replace(EffectResult.from_stored(stored), state=done.state)

    async def _permission_error(self, planned: Json) -> PermissionRefused:
        effect = str(planned["id"])
        if planned.get("state") == "failed" and planned.get("permission") in ("used", "none"):
            return PermissionRefused(effect, "attempts_spent")
        if "gate" not in planned:
            return PermissionRefused(effect, "refused")
        gate = (await self.session.http.get(f"/gates/{planned['gate']['id']}")).body
        return waiting.build_permission_error(effect, gate)

    async def _closed_result(self, planned: Json, request: EffectRequest) -> EffectResult | None:
        """Return the result of a closed effect.

        An effect that was compensated in order to be redone is planned again under a new key: then
        return None.
        """
        if planned.get("state") == "superseded":
            raise PermissionRefused(str(planned["id"]), "superseded")
        if planned.get("state") == "compensated" and await self._is_redone(planned):
            request.plan = {
                name: value
                for name, value in request.plan.items()
                if name not in ("call_id", "ordinal")
            }
            request.plan["effect_key"] = f"{planned['effect_key']}{REDO}"
            return None
        return await self.load_result(planned)

    async def _is_redone(self, planned: Json) -> bool:
        """Return whether the last attempt was compensated in order to be redone.

        A redone effect that was compensated later is compensated for good.
        """
        key = _compensation_key(planned["effect_key"], CANCEL, int(planned.get("attempt") or 1))
        response = await self.session.http.get("/effects", session=self.session.id, effect_key=key)
        return bool(response.body.get("items"))

    async def _settle_ambiguous(self, planned: Json, request: EffectRequest) -> EffectResult | None:
        """Settle the open effect: this one, or another with the same intent under another key."""
        own, other = str(planned["id"]), str(planned.get("open_effect") or "")
        if not other or other == own:
            return await self.settle(own, request)
        result = await self.settle(other, request)
        # The other effect did not happen: plan it again under its own key.
        if result is None:
            plan = {
                name: value
                for name, value in request.plan.items()
                if name not in ("call_id", "ordinal")
            }
            effect = (await self.session.http.get(f"/effects/{other}")).body
            original = replace(request, plan=plan | {"effect_key": effect["effect_key"]})
            result = await self._plan_until_settled(original)
        digest = str(planned.get("intent_digest"))
        self._plan_ids[digest] = [
            name for name in self._plan_ids.get(digest, []) if name != result.effect
        ]
        # The other effect is the requested one, so the new plan is not needed.
        await self._withdraw(digest, request, own)
        return result

    async def settle(self, effect: str, request: EffectRequest) -> EffectResult | None:
        """Follow the verdict of an effect that may have happened.

        Return None if it must be planned again.
        """
        # This process dispatched it and lost the answer: repeat the request under its key.
        if effect in self._dispatches:
            return await self.dispatch(effect, request)
        verdict = await self.verdict(effect)
        while True:
            await self.session.check_active()
            if verdict.answer == "skip":
                return await self._skipped_result(verdict, request)
            if verdict.answer == "compensate" or verdict.reason == "COMP_RESUME":
                await self.undo_attempt(verdict, request)
                return None
            if verdict.answer in ("execute", "replay"):
                return await self.execute_verdict(verdict, request)
            if verdict.answer == "ask":
                return None
            if verdict.answer == "probe":
                verdict = await self.run_probe(verdict, request)
                if verdict.answer == "probe":  # no new information: pause before the next probe
                    await waiting.sleep_or_raise(
                        self.session,
                        waiting.PAUSE_S,
                        request.limits,
                        f"{request.name} is being probed",
                        effect,
                        reason="probe",
                    )
            elif verdict.answer == "wait":
                verdict = await self.wait_for_verdict(verdict, request)
            else:
                raise HumanDecisionRequired(verdict)

    async def execute_verdict(
        self, verdict: Verdict, request: EffectRequest
    ) -> EffectResult | None:
        """Make the first or the next attempt that a verdict allows.

        Return None if the effect must be planned again.
        """
        if verdict.needs_permission:
            planned = await self.send_plan(request, verdict.effect_json.get("effect_key"))
            if planned.get("permission") == "pending":
                waiting.report_gate(self.session, planned, request.on_wait)
                await waiting.wait_for_permission(self.session, planned, request.limits)
            elif planned.get("permission") != "granted":
                raise await self._permission_error(planned)
        return await self.dispatch(verdict.effect, request, replays=verdict.attempt)

    async def verdict(self, effect: str) -> Verdict:
        """Ask what may be done with an effect now. Raises ServerUnavailable, Refused."""
        response = await self.session.http.get(
            f"/effects/{effect}/verdict", process=self.session.process
        )
        verdict = Verdict.from_json(response.body, effect)
        return verdict if verdict.now_us is not None else replace(verdict, now_us=response.now_us)

    async def run_probe(self, verdict: Verdict, request: EffectRequest) -> Verdict:
        """Run the probe, report its result, and return the verdict that follows."""
        if request.probe is None:
            raise HumanDecisionRequired(
                verdict,
                f"{request.tool} can be probed, but no probe was registered",
            )
        body: Json = {"attempt": verdict.attempt} | self.epoch_json()
        if verdict.now_us is not None:
            # A time of the server's clock before the probe began.
            body["began_us"] = verdict.now_us
        try:
            returned = request.probe(request.attempt_info(verdict))
            body["result"], reference = parse_probe_answer(
                await self.session.http.io.settle(returned)
            )
        except Exception as error:
            body["result"], reference = "error", ""
            body["detail"] = repr(error)[:1000].encode("utf-8", "replace").decode()
        if reference:
            body["external_reference"] = reference[:300]
        response = await self.retry_while_paused(
            request, lambda: self.session.http.post(f"/effects/{verdict.effect}/probe", body)
        )
        next_verdict = Verdict.from_json(response.body, verdict.effect)
        return (
            next_verdict
            if next_verdict.now_us is not None
            else replace(next_verdict, now_us=response.now_us)
        )

    async def undo_attempt(self, verdict: Verdict, request: EffectRequest) -> EffectResult:
        """Compensate an attempt by a separate effect.

        A later process derives the same key and finishes the compensation.
        """
        if request.undo is None:
            raise HumanDecisionRequired(
                verdict, f"{request.tool} must be compensated, but no compensation was registered"
            )
        undo, attempt = request.undo, request.attempt_info(verdict)
        arguments = undo.arguments(attempt)
        suffix = CANCEL if verdict.reason == "CANCEL_THEN_REDO" else EXTRAS
        expected_keys = [
            _compensation_key(attempt.effect_key, purpose, verdict.attempt)
            for purpose in (CANCEL, EXTRAS)
        ]
        key = expected_keys[0] if suffix == CANCEL else await self._next_free_key(expected_keys[1])
        if verdict.compensation:
            key = str(
                (await self.session.http.get(f"/effects/{verdict.compensation}")).body["effect_key"]
            )
            if key not in expected_keys and key.rpartition("#")[0] not in expected_keys:
                raise HumanDecisionRequired(
                    verdict, f"a compensation is in progress ({key}); finish it first"
                )
            attempt = replace(attempt, remote_key=await self._last_remote_key(verdict.effect))
        plan = {"effect_key": key, "tool": undo.tool, "arguments": arguments}
        undo_request = EffectRequest(
            undo.tool, arguments, lambda remote_key: undo.act(attempt, remote_key), plan
        )
        undo_request.compensates, undo_request.limits, undo_request.on_wait = (
            verdict.effect,
            request.limits,
            request.on_wait,
        )
        return await self.perform(undo_request)

    async def _next_free_key(self, name: str) -> str:
        """Return an unused key for the next compensation of duplicates.

        Every probe that finds several results needs a compensation of its own.
        """
        number, key = 1, name
        while (
            await self.session.http.get("/effects", session=self.session.id, effect_key=key)
        ).body["items"]:
            number, key = number + 1, f"{name}#{number + 1}"
        return key

    async def _last_remote_key(self, effect: str) -> str:
        """Return the remote key of an effect's last attempt."""
        attempts = (await self.session.http.get(f"/effects/{effect}")).body.get("attempts") or [{}]
        return str(attempts[-1].get("remote_key") or "")

    async def _skipped_result(
        self, verdict: Verdict, request: EffectRequest
    ) -> EffectResult | None:
        effect = (await self.session.http.get(f"/effects/{verdict.effect}")).body
        if verdict.reason in ("GATE_DENIED", "GATE_EXPIRED"):
            raise await self._permission_error(effect)
        if verdict.reason == "ATTEMPTS_SPENT":
            raise PermissionRefused(verdict.effect, "attempts_spent")
        if verdict.reason == "CLOSED":
            return await self._closed_result(effect, request)
        return await self.load_result(effect)

    async def wait_for_verdict(self, verdict: Verdict, request: EffectRequest) -> Verdict:
        """Wait for what a verdict waits for, then return the next verdict.

        That is a gate, a stop, the lease of another process, or the in-flight window.
        """
        if verdict.reason == "GATE_PENDING" and isinstance(verdict.effect_json.get("gate"), dict):
            waiting.report_gate(self.session, verdict.effect_json, request.on_wait)
            await waiting.wait_for_permission(self.session, verdict.effect_json, request.limits)
        else:
            request.on_wait("verdict", {"detail": verdict.sentence, "reason": verdict.reason})
            pause_s = waiting.seconds_until(verdict.until_us, verdict.now_us, waiting.PAUSE_S)
            sentence = f"{request.name}: {verdict.sentence or verdict.reason}"
            await waiting.sleep_or_raise(
                self.session,
                pause_s,
                request.limits,
                sentence,
                verdict.effect,
                reason=waiting.REASON_OF_VERDICT.get(verdict.reason, "in_flight_window"),
                until_us=verdict.until_us,
            )
        return await self.verdict(verdict.effect)
