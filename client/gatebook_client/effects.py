"""One effect, done once: planned, let go, begun, done and told, or found out about after a crash.

What may have happened is done again only where Gatebook's verdict says so, as its next attempt, with the key that the
verdict names.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace

from gatebook_client import waiting
from gatebook_client.attempts import Attempts, Wish
from gatebook_client.errors import NeedsPerson, NoLeave, Refused, SessionEnded
from gatebook_client.keys import digest_of
from gatebook_client.values import ENDED, Json, Performed, Verdict, what_was_found

# Suffixes of names: an attempt taken back to be made anew, the effect made anew, and what is taken back for good.
CANCEL, REDO, EXTRAS = ":cancel", ":redo", ":undo"
_OPEN: tuple[Json, ...] = (
    {"state": "dispatched"},
    {"state": "failed"},
    {"state": "acknowledged", "outcome": "unknown"},
    {"state": "planned"},
)


def _undoing(effect_key: object, suffix: str, attempt: int) -> str:
    """The name of what takes an attempt back. Each has its own: what is planned under it names the attempt."""
    return f"{effect_key}{suffix}" if attempt <= 1 else f"{effect_key}{suffix}:{attempt}"


def open_effects(effects: Attempts) -> list[Json]:
    """What may have happened first, then what did not begin; each the oldest first."""
    return [effect for asked in _OPEN for effect in reversed(_listed(effects, asked))]


def left_open(effects: Attempts) -> list[Json]:
    """What keeps a session from being complete: what may have happened, waits for people, or may begin."""
    begun = [*_listed(effects, {"state": "dispatched"}), *_listed(effects, {"outcome": "unknown"})]
    planned = [one for one in _listed(effects, {"state": "planned"}) if one.get("leave") in ("pending", "granted")]
    found = {str(one["id"]): one for one in (*begun, *planned) if one.get("state") != "superseded"}
    return list(found.values())


def _listed(effects: Attempts, asked: Json) -> list[Json]:
    """The effects of the session that fit, the newest first."""
    found: list[Json] = []
    after = ""
    while True:
        told = effects.holder.wire.get("/effects", session=effects.holder.id, limit=200, after=after, **asked).body
        found += told["items"]
        after = str(told.get("next") or "")
        if not after:
            return found


def plan_of(effects: Attempts, effect: str) -> Json:
    """What was planned, as far as Gatebook tells us; nothing where it was not this agent's, or is erased."""
    try:
        return effects.holder.wire.get(f"/effects/{effect}/plan").body
    except Refused:
        return {}


@dataclass
class Effects(Attempts):
    """Performs the effects of one session."""

    _unheard: dict[str, str] = field(default_factory=dict)  # effects by their intent
    _names: dict[str, list[str]] = field(default_factory=dict)  # planned, and never more, while the intent was open

    def perform(self, wish: Wish) -> Performed:
        """See that it is done once. Raises what errors.py tells, and what the act raises, after that was told."""
        self.tell_untold()
        if self.holder.status in ENDED:
            done = self._done_before_the_end(wish)
            if done is not None:
                return done
            if not wish.compensates:  # to take something back is what alone may still be asked for
                raise SessionEnded(self.holder.status)
        return self._until_known(wish)

    def _until_known(self, wish: Wish) -> Performed:
        while True:
            planned = self._plan(wish)
            found = self._unheard_of(planned, wish) or self._follow(planned, wish)
            if found is not None:
                return found

    def _done_before_the_end(self, wish: Wish) -> Performed | None:
        """What the session did under the name of a wish; None where nobody said that it did it."""
        name = wish.plan.get("effect_key")
        for told in _listed(self, {"effect_key": name} if name else {"tool": wish.tool}):
            if not self._is_meant(told, wish):
                continue
            if told["state"] == "compensated" and self._was_cancelled(told):
                wish.plan["effect_key"] = f"{told['effect_key']}{REDO}"
                return self._done_before_the_end(wish)
            if told["state"] == "compensated" or (told["state"] == "acknowledged" and told.get("outcome") != "unknown"):
                return Performed.read(told, again=True)
        return None

    def _is_meant(self, told: Json, wish: Wish) -> bool:
        """Whether an effect has the name of a wish, and its plan is not known to be another."""
        if "effect_key" not in wish.plan:  # of a call Gatebook makes the name: the call, the intent, which of them
            parts = str(told["effect_key"]).split(":")
            if (":".join(parts[:-2]), parts[-1]) != (wish.plan.get("call_id"), str(wish.plan.get("ordinal"))):
                return False
        plan, free_text = plan_of(self, str(told["id"])), wish.plan.get("free_text", ())
        if "arguments" not in plan or plan.get("redactions"):
            return bool(told["tool"] == wish.tool)
        wanted = digest_of(wish.tool, wish.arguments, free_text)
        return digest_of(str(told["tool"]), plan["arguments"], free_text) == wanted

    def _plan(self, wish: Wish, effect_key: object = "") -> Json:
        path = f"/effects/{wish.compensates}/compensate" if wish.compensates else "/effects"
        body = wish.plan | self.epoch() | ({} if wish.compensates else {"session": self.holder.id})
        if effect_key:
            body = {name: value for name, value in body.items() if name not in ("call_id", "ordinal")}
            body["effect_key"] = effect_key
        told = self.patiently(wish, lambda: self.holder.wire.post(path, body)).body
        if told.get("same_calls") and told.get("open_effect") not in wish.told_of:
            wish.told_of.add(told.get("open_effect"))
            wish.waiting("same_call", told)
        return told

    def remember(self, left_at_us: int | None) -> None:
        """Learn at the start what a process before this one may have done without its agent hearing of it.

        That is what was open, and what was done since it left of itself at `left_at_us`; where it did not, what nothing
        was begun after. An agent whose call was never answered asks again under a new call id; the first such call gets
        what is there already.
        """
        done = self.holder.wire.get(f"/sessions/{self.holder.id}/resume", process=self.holder.process).body["done"]
        unheard = [one for one in done if (one["unheard"] if left_at_us is None else one["changed_us"] > left_at_us)]
        self._unheard = {one["intent_digest"]: one["effect"] for one in reversed(unheard) if "intent_digest" in one}
        for one in open_effects(self):
            digest = str(one.get("intent_digest") or "")
            if one["state"] == "planned" and "gate" not in one:
                self._names.setdefault(digest, []).append(str(one["id"]))
            elif one["state"] != "planned":
                self._unheard[digest] = str(one["id"])

    def _unheard_of(self, planned: Json, wish: Wish) -> Performed | None:
        """The effect of an earlier process that a call asks for, where nobody was told that it had happened."""
        digest, withdrawn = str(planned.get("intent_digest")), planned.get("state") == "superseded"
        earlier = self._unheard.pop(digest, "")
        asks_anew = "call_id" in wish.plan and (withdrawn or planned.get("answer") in ("proceed", "wait", "ambiguous"))
        if not earlier or earlier == planned["id"] or not asks_anew:
            return None
        told = self.holder.wire.get(f"/effects/{earlier}").body
        if told.get("state") != "acknowledged" or told.get("outcome") == "unknown":
            return None
        self._withdraw(digest, wish, "" if withdrawn else str(planned["id"]))
        return Performed.read(told, again=True)

    def _withdraw(self, digest: str, wish: Wish, own: str) -> None:
        """Withdraw what stands for nothing: the new name of what is done, and those that earlier processes gave it."""
        if own:
            self.patiently(wish, lambda: self.holder.wire.post(f"/effects/{own}/supersede", self.epoch()))
        for name in self._names.pop(digest, []) if "call_id" in wish.plan else []:
            with suppress(Refused):  # somebody has leave for it by now
                self.holder.wire.post(f"/effects/{name}/supersede", self.epoch())

    def _follow(self, planned: Json, wish: Wish) -> Performed | None:
        """Do what the answer to a plan says; None when it is to be planned again."""
        effect, answer = str(planned["id"]), planned.get("answer")
        if answer == "proceed":
            return self.dispatch(effect, wish)
        if answer == "wait" and planned.get("leave") == "pending":
            wish.waiting("gate", planned)
            waiting.for_leave(self.holder, planned, wish.until)
            return self.dispatch(effect, wish)
        if answer == "wait":
            waiting.pause(self.holder, waiting.PAUSE_S, wish.until, f"There is no leave for {wish.name} yet", effect)
            return None
        if answer == "done":
            return self._settled(planned, wish)
        if answer == "ambiguous":
            return self._ambiguous(planned, wish)
        raise self._no_leave(planned)

    def _no_leave(self, planned: Json) -> NoLeave:
        effect = str(planned["id"])
        if planned.get("state") == "failed" and planned.get("leave") in ("used", "held"):
            return NoLeave(effect, "attempts_spent")
        if "gate" not in planned:
            return NoLeave(effect, "refused")
        gate = self.holder.wire.get(f"/gates/{planned['gate']['id']}").body
        return NoLeave(effect, str(gate.get("status") or "refused"), str(gate.get("message") or ""))

    def _settled(self, planned: Json, wish: Wish) -> Performed | None:
        """An effect that is over. What was taken back in order to be done anew is wanted still, under a next name."""
        if planned.get("state") == "superseded":
            raise NoLeave(str(planned["id"]), "superseded")
        if planned.get("state") == "compensated" and self._was_cancelled(planned):
            wish.plan = {name: value for name, value in wish.plan.items() if name not in ("call_id", "ordinal")}
            wish.plan["effect_key"] = f"{planned['effect_key']}{REDO}"
            return None
        return Performed.read(planned, again=True)

    def _was_cancelled(self, planned: Json) -> bool:
        """Whether its last attempt was taken back to be made anew; what was done since then was taken back for good."""
        key = _undoing(planned["effect_key"], CANCEL, int(planned.get("attempt") or 1))
        told = self.holder.wire.get("/effects", session=self.holder.id, effect_key=key)
        return bool(told.body.get("items"))

    def _ambiguous(self, planned: Json, wish: Wish) -> Performed | None:
        """Find out about what is open: the effect itself, or another of the same intent under another name."""
        own, other = str(planned["id"]), str(planned.get("open_effect") or "")
        if not other or other == own:
            return self.settle(own, wish)
        found = self.settle(other, wish)
        if found is None:  # it did not happen and is to be planned again: this is what was wanted, under its name
            plan = {name: value for name, value in wish.plan.items() if name not in ("call_id", "ordinal")}
            told = self.holder.wire.get(f"/effects/{other}").body
            meant = replace(wish, plan=plan | {"effect_key": told["effect_key"]})
            found = self._until_known(meant)
        digest = str(planned.get("intent_digest"))
        self._names[digest] = [name for name in self._names.get(digest, []) if name != found.effect]
        self._withdraw(digest, wish, own)  # what was found is the one that was wanted; the new name stands for nothing
        return found

    def settle(self, effect: str, wish: Wish) -> Performed | None:
        """Follow the verdict of an effect that may have happened; None when it is to be planned again."""
        if effect in self._dispatches:  # begun by this process, whose answer was lost: asked for again under its key
            return self.dispatch(effect, wish)
        verdict = self.verdict(effect)
        while True:
            self.holder.guard()
            if verdict.answer == "skip":
                return self._skipped(verdict, wish)
            if verdict.answer == "compensate" or verdict.reason == "COMP_RESUME":
                self.cancel(verdict, wish)
                return None
            if verdict.answer in ("execute", "replay"):
                return self.act_on(verdict, wish)
            if verdict.answer == "ask":
                return None
            if verdict.answer == "probe":
                verdict = self.look(verdict, wish)
                if verdict.answer == "probe":  # it told nothing new: not at once again
                    waiting.pause(self.holder, waiting.PAUSE_S, wish.until, f"{wish.name} is looked for", effect)
            elif verdict.answer == "wait":
                verdict = self.wait_out(verdict, wish)
            else:
                raise NeedsPerson(verdict)

    def act_on(self, verdict: Verdict, wish: Wish) -> Performed | None:
        """Do what a verdict allows: begin what was not begun, or make the next attempt. None: look again."""
        if verdict.needs_leave:
            planned = self._plan(wish, verdict.about.get("effect_key"))
            if planned.get("leave") == "pending":
                wish.waiting("gate", planned)
                waiting.for_leave(self.holder, planned, wish.until)
            elif planned.get("leave") != "granted":
                raise self._no_leave(planned)
        return self.dispatch(verdict.effect, wish, replays=verdict.attempt)

    def verdict(self, effect: str) -> Verdict:
        """Ask what may be done with an effect now. Raises LedgerAway, Refused."""
        told = self.holder.wire.get(f"/effects/{effect}/verdict", process=self.holder.process)
        verdict = Verdict.read(told.body, effect)
        return verdict if verdict.now_us is not None else replace(verdict, now_us=told.now_us)

    def look(self, verdict: Verdict, wish: Wish) -> Verdict:
        """Let the probe look, and report what it found; the verdict that follows from it."""
        if wish.probe is None:
            raise NeedsPerson(verdict, f"what happened to {wish.tool} can be looked up, and no probe was given for it")
        body: Json = {"attempt": verdict.attempt} | self.epoch()
        if verdict.now_us is not None:
            body["began_us"] = verdict.now_us  # a moment of the server's own clock before the look began
        try:
            body["found"], reference = what_was_found(wish.probe(wish.known(verdict)))
        except Exception as fault:
            body["found"], reference = "error", ""
            body["detail"] = repr(fault)[:1000].encode("utf-8", "replace").decode()
        if reference:
            body["external_reference"] = reference[:300]
        told = self.patiently(wish, lambda: self.holder.wire.post(f"/effects/{verdict.effect}/probe", body))
        found = Verdict.read(told.body, verdict.effect)
        return found if found.now_us is not None else replace(found, now_us=told.now_us)

    def cancel(self, verdict: Verdict, wish: Wish) -> Performed:
        """Take an attempt back, by an effect of its own under a name that a later process finds and finishes."""
        if wish.undo is None:
            raise NeedsPerson(verdict, f"{wish.tool} is to be taken back, and no compensation was given for it")
        undo, known = wish.undo, wish.known(verdict)
        arguments = undo.arguments(known)
        suffix = CANCEL if verdict.reason == "CANCEL_THEN_REDO" else EXTRAS
        ours = [_undoing(known.effect_key, either, verdict.attempt) for either in (CANCEL, EXTRAS)]
        key = ours[0] if suffix == CANCEL else self._unused(ours[1])
        if verdict.compensation:
            key = str(self.holder.wire.get(f"/effects/{verdict.compensation}").body["effect_key"])
            if key not in ours and key.rpartition("#")[0] not in ours:
                raise NeedsPerson(verdict, f"it is being taken back ({key}); finish that first")
            known = replace(known, remote_key=self._last_key(verdict.effect))
        plan = {"effect_key": key, "tool": undo.tool, "arguments": arguments}
        back = Wish(undo.tool, arguments, lambda remote_key: undo.act(known, remote_key), plan)
        back.compensates, back.until, back.waiting = verdict.effect, wish.until, wish.waiting
        return self.perform(back)

    def _unused(self, name: str) -> str:
        """The name of the next undoing of what is too many: each look that finds more asks for one of its own."""
        number, key = 1, name
        while self.holder.wire.get("/effects", session=self.holder.id, effect_key=key).body["items"]:
            number, key = number + 1, f"{name}#{number + 1}"
        return key

    def _last_key(self, effect: str) -> str:
        """The remote key of an effect's last attempt."""
        attempts = self.holder.wire.get(f"/effects/{effect}").body.get("attempts") or [{}]
        return str(attempts[-1].get("remote_key") or "")

    def _skipped(self, verdict: Verdict, wish: Wish) -> Performed | None:
        about = self.holder.wire.get(f"/effects/{verdict.effect}").body
        if verdict.reason in ("GATE_DENIED", "GATE_EXPIRED"):
            raise self._no_leave(about)
        if verdict.reason == "ATTEMPTS_SPENT":
            raise NoLeave(verdict.effect, "attempts_spent")
        if verdict.reason == "CLOSED":
            return self._settled(about, wish)
        return Performed.read(about, again=True)

    def wait_out(self, verdict: Verdict, wish: Wish) -> Verdict:
        """Wait for what a verdict waits for: people, a stop, another's lease, a fence; the verdict after it."""
        if verdict.reason == "GATE_PENDING" and isinstance(verdict.about.get("gate"), dict):
            wish.waiting("gate", verdict.about)
            waiting.for_leave(self.holder, verdict.about, wish.until)
        else:
            wish.waiting("verdict", {"detail": verdict.sentence, "reason": verdict.reason})
            pause_s = waiting.seconds_until(verdict.until_us, verdict.now_us, waiting.PAUSE_S)
            sentence = f"{wish.name}: {verdict.sentence or verdict.reason}"
            waiting.pause(self.holder, pause_s, wish.until, sentence, verdict.effect)
        return self.verdict(verdict.effect)
