"""What the book says of permission, gates and attempts, replayed by other code than wrote it: from facts
alone."""

import json
from typing import Any
from uuid import UUID

from approvals import gated_commands
from approvals.gates.statuses import PERMISSION_OF_STATUS
from approvals.models import Gate
from journal.models import Entry
from journal.order_keys import make_order_key
from ledger.fold import apply
from ledger.models import Effect
from ledger.states import MOVED_PERMISSIONS
from ledger.store.effect_rows import EffectRow

MOVES = ("effect.dispatched", "effect.acknowledged", "effect.failed")
ENDS = ("changes_requested", "expired", "expired_unused", "used", "revoked", "cancelled")


class Book:
    """The journal as one story wrote it. What is written stays as it is, so each entry is read
    once."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def read_on(self) -> None:
        """Read what was written since, in the order of positions."""
        last = self.entries[-1].position if self.entries else 0
        self.entries += (
            Entry.objects.filter(position__gt=last).select_related("body").order_by("position")
        )

    def of(self, effect: UUID) -> list[Entry]:
        """The entries of an effect."""
        return [entry for entry in self.entries if entry.effect == effect]

    def about(self, subject: UUID) -> list[Entry]:
        """The entries that speak of a gate."""
        return [entry for entry in self.entries if entry.subject == subject]


def basis_of(told: list[Entry], attempt: int) -> str:
    """On what the permission rests under which an attempt of an effect ran: the last word about permission
    before it."""
    ran = next(entry.position for entry in told if entry.attempt == attempt and entry.kind in MOVES)
    basis = ""
    for entry in told:
        if entry.position < ran and entry.kind in ("effect.planned", "effect.granted"):
            facts = json.loads(entry.facts)
            basis = facts["basis"] if facts.get("permission") == "granted" else basis
    return basis


def set_aside_for(told: list[Entry], attempt: int, ended: list[Gate]) -> Gate | None:
    """The one of `ended` gates under whose yes an attempt ran, in time, that had been set aside for
    an earlier attempt.

    An ended gate stays as it is; so the book must say whose yes it was, once the attempt was heard
    of.
    """
    ran = next(entry for entry in told if entry.attempt == attempt and entry.kind in MOVES)
    after = (
        entry.facts
        for entry in told
        if entry.position > ran.position and entry.kind == "effect.granted"
    )
    ref = json.loads(next(after, "{}")).get("ref")
    in_time = (
        one
        for one in ended
        if (one.ended_at_us or 0) <= ran.received_us <= (one.permission_until_us or 0)
    )
    return next(
        (one for one in in_time if one.id.hex == ref and one.opened_position < ran.position), None
    )


def permission_of(told: list[Entry]) -> str:
    """What permission an effect stands under; two words with | between where only the policy knows."""
    word, until = "none", None
    aside: tuple[str, int | None] | None = (
        None  # what stood for the attempt after one that had happened after all
    )
    ran: dict[int | None, str] = {}
    failed: set[int | None] = set()
    for entry in told:
        facts = json.loads(entry.facts)
        if (
            entry.kind in ("effect.planned", "effect.granted", "effect.withheld")
            and "permission" in facts
        ):
            if facts["permission"] in MOVED_PERMISSIONS:
                continue  # says on what it rests; that it is so is replayed here
            word, until = facts["permission"], facts.get("until_us")
        elif entry.kind == "gate.requested":
            word = "pending"
        elif (
            entry.kind == "gate.ruled"
            and facts["ruling"] in PERMISSION_OF_STATUS
            and word in ("pending", "granted")
        ):
            word = PERMISSION_OF_STATUS[facts["ruling"]][0]
        elif (
            entry.kind.startswith("gate.")
            and entry.kind[5:] in PERMISSION_OF_STATUS
            and word in ("pending", "granted")
        ):
            word = PERMISSION_OF_STATUS[entry.kind[5:]][0]
        elif entry.kind in MOVES:
            failed |= {entry.attempt} if entry.kind == "effect.failed" else set()
            if entry.attempt not in ran:
                (word, until), aside = aside or (word, until), None
                spent = word == "granted" and (until is None or entry.received_us <= until)
                word = (
                    "used"
                    if spent
                    else "bypassed"
                    if word in ("pending", "denied")
                    else "observed|bypassed"
                )
                ran[entry.attempt] = word
            elif (
                word not in (*MOVED_PERMISSIONS, "observed|bypassed")
                and entry.kind == "effect.acknowledged"
            ):
                # That nobody knows says nothing once another attempt was made, or this one was said
                # to have failed.
                says = facts["outcome"] != "unknown" or (
                    entry.attempt == max(filter(None, ran)) and entry.attempt not in failed
                )
                if says:
                    (word, until), aside = (ran[entry.attempt], None), (word, until)
    return word


def status_of(told: list[Entry]) -> str:
    """How a gate stands."""
    status = ""
    for entry in told:
        if entry.kind == "gate.requested":
            status = "pending"
        elif entry.kind == "gate.ruled":
            status = json.loads(entry.facts)["ruling"]
        elif entry.kind[5:] in ENDS:
            status = entry.kind[5:]
    return status


def folded(effect: Effect, told: list[Entry]) -> tuple[EffectRow, dict[int, Any]]:
    """An effect made again from its entries, as evidence that was imported: permission is told
    elsewhere."""
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
    for entry in reversed([one for one in told if one.kind in apply.REPORTABLE_KINDS]):
        body = json.loads(entry.body.text)
        values = {
            name: body[name] for name in ("tool", "process", "outcome", "reason") if name in body
        }
        if entry.kind == "effect.planned":
            values["intent_digest"] = json.loads(entry.facts).get("intent", effect.intent_digest)
        mark = make_order_key(entry.lane, entry.producer_seq, entry.source, entry.event_id)
        said = apply.Fact(
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
        apply.fold_fact(row, attempts, said, gated_commands.classify_observation)
    apply.derive_state(row, attempts, 300)
    return row, attempts
