"""Claims of `gatebook resume-runner`: the start of a command is an effect, recorded before it.

Every session that is continued has a child session, `resume:<id>`, and in it one effect per gate.
To claim a gate is to dispatch that effect, which only one process can. A claim without a reported
start is an effect of unknown outcome: it is shown to people, and never repeated without them.
"""

import os
import secrets
import socket
from dataclasses import dataclass

from gatebook_client.client import Client
from gatebook_client.errors import NotYet, Refused
from gatebook_client.resume_rules import Command
from gatebook_client.sessions import Session
from gatebook_client.types import Dispatched, Json, PlannedEffect

TOOL = "session.resume"
LEASE_S = 60


@dataclass(frozen=True)
class Claim:
    """A claimed gate: start the command now, and report it."""

    ledger: Session
    effect_key: str
    attempt: Dispatched


class ClaimSettled(Exception):
    """There is nothing to start for this gate; `sentence` says why, if people should know."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence


class ClaimWaits(Exception):
    """Nothing can be started for this gate now; `sentence` says why, if people should know."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence


class Claims:
    """Claims gates for one runner."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.host = "".join(c if c.isascii() and c.isalnum() else "-" for c in socket.gethostname())
        # Its end is random, and never leaves this process, so that no other can act as this one.
        self.process = f"{self.host[:20]}:{os.getpid()}:{secrets.token_hex(12)}"
        # Of dispatches whose answer is missing: by the same key the server answers them again.
        self._unanswered: dict[str, str] = {}

    def lease_session(self, session: str) -> Json | None:
        """Take the lease on continuing a session; None while another runner has it."""
        body = {"resource": f"resume {session}", "process": self.process, "ttl_s": LEASE_S}
        try:
            return self.client.http.post("/leases", body).body
        except Refused as refusal:
            if refusal.code == "LEASE_HELD":
                return None
            raise

    def release_lease(self, lease: Json) -> None:
        """Let other runners continue the session. A lease that was lost is left alone."""
        try:
            self.client.http.post(f"/leases/{lease['id']}/release", {"epoch": lease["epoch"]})
        except Refused as refusal:
            if refusal.code != "LEASE_LOST":
                raise

    def claim_gate(
        self, gate: Json, session: Json, command: Command | None, *, retry: bool
    ) -> Claim:
        """Claim a gate, with the lease of its session held.

        Returns only if this process alone may start the command now. Raises ClaimSettled and
        ClaimWaits. `retry` permits another start after one that failed.
        """
        ledger = self.client.session(
            f"resume:{session['id']}",
            mode="one_shot",
            title=f"Continues {session['handle']}",
            parent=session["id"],
            end_on_exit=False,
            match_unanswered_calls=False,
        )
        ledger.core.process = self.process
        key = f"resume:{gate['id']}"
        earlier = self._find_claim(ledger, key)
        if earlier is not None and key not in self._unanswered:
            self._check_earlier(earlier, gate, retry=retry)
        arguments = {"gate": gate["handle"], "session": session["handle"]}
        if key not in self._unanswered:
            self._plan_start(ledger, key, arguments, gate, command)
        return Claim(ledger, key, self._dispatch(ledger.find_effect(key=key), arguments))

    def _plan_start(
        self, ledger: Session, key: str, arguments: Json, gate: Json, command: Command | None
    ) -> None:
        """Plan the start. Returns if it is permitted; raises ClaimSettled and ClaimWaits."""
        try:
            planned = ledger.plan(
                TOOL,
                arguments,
                key=key,
                why=f"{gate['handle']} is {gate['status']}",
                meta={f"runner {self.host} {os.getpid()}": self._describe(command)},
            )
        except NotYet as later:
            raise ClaimWaits(str(later)) from later
        if planned.answer == "done":
            raise ClaimSettled
        if planned.answer == "blocked":
            raise ClaimSettled(f"{planned.handle}, its start, is not permitted.")
        if planned.answer == "wait":
            raise ClaimWaits(
                f"{planned.handle} itself waits for approval ({planned.gate_url}). Permit the"
                f" tool {TOOL} in your policy, so that only the agent's own calls are held."
            )
        if planned.answer == "ambiguous":
            raise ClaimWaits

    def _dispatch(self, planned: PlannedEffect, arguments: Json) -> Dispatched:
        """Claim the start: of all processes, this succeeds for one."""
        idempotency_key = self._unanswered.setdefault(planned.effect_key, secrets.token_hex(16))
        body = {"process": self.process, "arguments": arguments}
        path = f"/effects/{planned.effect}/dispatch"
        try:
            answer = self.client.http.post(path, body, key=idempotency_key)
        except Refused as refusal:
            del self._unanswered[planned.effect_key]
            if refusal.code == "ALREADY_DISPATCHED":  # another runner was quicker
                raise ClaimWaits from refusal
            raise ClaimWaits(refusal.sentence) from refusal
        del self._unanswered[planned.effect_key]
        return Dispatched.from_json(answer.body)

    def _describe(self, command: Command | None) -> Json:
        """Return what people see of a claim, whatever becomes of it."""
        if command is None:
            return {"host": self.host, "pid": os.getpid()}
        return {
            "host": self.host,
            "pid": os.getpid(),
            "command": list(command.arguments),
            "cwd": command.folder,
        }

    def _find_claim(self, ledger: Session, key: str) -> PlannedEffect | None:
        try:
            return ledger.find_effect(key=key)
        except Refused as refusal:
            if refusal.status != 404:
                raise
            return None

    def _check_earlier(self, earlier: PlannedEffect, gate: Json, *, retry: bool) -> None:
        """Return if a gate that was claimed before may be claimed again."""
        outcome = earlier.effect_json.get("outcome")
        if earlier.state == "planned":
            return
        if earlier.state == "acknowledged" and outcome != "unknown":
            raise ClaimSettled
        if earlier.state in ("superseded", "compensated"):
            raise ClaimSettled
        if earlier.state == "failed" and outcome == "error":  # nothing ran
            stored = self.client.http.get(f"/effects/{earlier.effect}").body
            resolution = stored.get("resolution") or {}
            if retry or resolution.get("attempt") == earlier.attempt:
                return
            raise ClaimSettled(
                f"its command could not be started before ({earlier.handle}). Correct the command,"
                f" then run `gatebook resume-runner` with --retry {gate['handle']}."
            )
        raise ClaimWaits(
            f"a runner claimed it and did not report a start ({earlier.handle}). Nobody knows"
            f" whether the command ran. Look, and resolve {earlier.handle} at"
            f" {self.client.http.url}/effects/{earlier.effect}/."
        )
