"""Permissions, gates and attempts of the journal, replayed by independent code from facts alone."""

import json
from typing import Any
from uuid import UUID

from approvals.gates.statuses import PERMISSION_OF_STATUS
from approvals.models import Gate
from journal.models import Entry
from journal.order_keys import make_order_key
from ledger.fold import effect_state
from ledger.models import Effect
from ledger.states import MOVED_PERMISSIONS
from ledger.store.effect_rows import EffectRow

MOVES = ("effect.dispatched", "effect.acknowledged", "effect.failed")
ENDS = ("changes_requested", "expired", "expired_unused", "used", "revoked", "cancelled")


class JournalReader:
    """Reads the journal of one story. Entries never change, so each entry is read once."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def read_on(self) -> None:
        """Read the entries written since, in the order of positions."""
        last = self.entries[-1].position if self.entries else 0
        self.entries += (
            Entry.objects.filter(position__gt=last).select_related("body").order_by("position")
        )

    def of(self, effect: UUID) -> list[Entry]:
        """The entries of an effect."""
        return [entry for entry in self.entries if entry.effect == effect]

    def about(self, subject: UUID) -> list[Entry]:
        """The entries about a gate."""
        return [entry for entry in self.entries if entry.subject == subject]


def basis_of(entries: list[Entry], attempt: int) -> str:
    """The basis of the permission under which an attempt ran: the last entry about permission
    before it."""
    ran = next(
        entry.position for entry in entries if entry.attempt == attempt and entry.kind in MOVES
    )
    basis = ""
    for entry in entries:
        if entry.position < ran and entry.kind in ("effect.planned", "effect.granted"):
            facts = json.loads(entry.facts)
            basis = facts["basis"] if facts.get("permission") == "granted" else basis
    return basis


def set_aside_for(entries: list[Entry], attempt: int, ended: list[Gate]) -> Gate | None:
    """Return the one of `ended` gates whose approval an attempt used in time.

    That approval had been set aside for an earlier attempt. An ended gate does not change, so the
    journal must record whose approval it was once the attempt is reported.
    """
    ran = next(entry for entry in entries if entry.attempt == attempt and entry.kind in MOVES)
    after = (
        entry.facts
        for entry in entries
        if entry.position > ran.position and entry.kind == "effect.granted"
    )
    ref = json.loads(next(after, "{}")).get("ref")
    in_time = (
        gate
        for gate in ended
        if (gate.ended_at_us or 0) <= ran.received_us <= (gate.permission_until_us or 0)
    )
    return next(
        (gate for gate in in_time if gate.id.hex == ref and gate.opened_position < ran.position),
        None,
    )


def permission_of(entries: list[Entry]) -> str:
    """The permission of an effect; two values with | between where only the policy decides."""
    current, until = "none", None
    aside: tuple[str, int | None] | None = (
        None  # permission for the attempt after an attempt that had happened after all
    )
    ran: dict[int | None, str] = {}
    failed: set[int | None] = set()
    for entry in entries:
        facts = json.loads(entry.facts)
        if (
            entry.kind in ("effect.planned", "effect.granted", "effect.withheld")
            and "permission" in facts
        ):
            if facts["permission"] in MOVED_PERMISSIONS:
                continue  # names its basis; that the basis is right is replayed below
            current, until = facts["permission"], facts.get("until_us")
        elif entry.kind == "gate.requested":
            current = "pending"
        elif (
            entry.kind == "gate.ruled"
            and facts["ruling"] in PERMISSION_OF_STATUS
            and current in ("pending", "granted")
        ):
            current = PERMISSION_OF_STATUS[facts["ruling"]][0]
        elif (
            entry.kind.startswith("gate.")
            and entry.kind[5:] in PERMISSION_OF_STATUS
            and current in ("pending", "granted")
        ):
            current = PERMISSION_OF_STATUS[entry.kind[5:]][0]
        elif entry.kind in MOVES:
            failed |= {entry.attempt} if entry.kind == "effect.failed" else set()
            if entry.attempt not in ran:
                (current, until), aside = aside or (current, until), None
                spent = current == "granted" and (until is None or entry.received_us <= until)
                current = (
                    "used"
                    if spent
                    else "bypassed"
                    if current in ("pending", "denied")
                    else "observed|bypassed"
                )
                ran[entry.attempt] = current
            elif (
                current not in (*MOVED_PERMISSIONS, "observed|bypassed")
                and entry.kind == "effect.acknowledged"
            ):
                # An unknown outcome changes nothing after another attempt was made, or after this
                # attempt was reported as failed.
                is_reliable = facts["outcome"] != "unknown" or (
                    entry.attempt == max(filter(None, ran)) and entry.attempt not in failed
                )
                if is_reliable:
                    (current, until), aside = (ran[entry.attempt], None), (current, until)
    return current


def status_of(entries: list[Entry]) -> str:
    """The status of a gate."""
    status = ""
    for entry in entries:
        if entry.kind == "gate.requested":
            status = "pending"
        elif entry.kind == "gate.ruled":
            status = json.loads(entry.facts)["ruling"]
        elif entry.kind[5:] in ENDS:
            status = entry.kind[5:]
    return status


def folded(effect: Effect, entries: list[Entry]) -> tuple[EffectRow, dict[int, Any]]:
    """Fold an effect from its entries as imported evidence; permission is folded elsewhere."""
    row = EffectRow(
        effect.id,
        effect.project_id,
        effect.session_id,
        effect.agent_id,
        effect.effect_key,
        1,
        1,
        1,
        permission="observed",
        permission_basis="import",
    )
    attempts: dict[int, Any] = {}
    for entry in reversed(
        [reported for reported in entries if reported.kind in effect_state.REPORTABLE_KINDS]
    ):
        body = json.loads(entry.body.text)
        values = {
            name: body[name] for name in ("tool", "process", "outcome", "reason") if name in body
        }
        if entry.kind == "effect.planned":
            values["intent_digest"] = json.loads(entry.facts).get("intent", effect.intent_digest)
        mark = make_order_key(entry.lane, entry.producer_seq, entry.source, entry.event_id)
        fact = effect_state.Fact(
            entry.kind,
            mark,
            entry.lane,
            entry.event_id,
            1,
            1,
            1,
            entry.attempt or 1,
            True,
            values=values,
        )
        effect_state.fold_fact(row, attempts, fact)
    effect_state.derive_state(row, attempts, 300)
    return row, attempts
