"""Permission: grants, and what an agent may do now.

The approvals app decides about permission. `basis` and `ref` are opaque to the ledger.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from db.clock import now_us
from journal import entries
from ledger.refusals import GONE_BASES
from ledger.store import writer
from ledger.store.effect_rows import EffectRow


class Grant(NamedTuple):
    """Permission for one attempt, as approvals decided. `ref` is opaque to the ledger."""

    permission: str
    basis: str
    ref: str = ""
    until_us: int | None = None


def is_permission_expired(row: EffectRow, now_us: int) -> bool:
    """True if permission was granted and has expired; no entry marks the expiry."""
    return row.is_expired(now_us)


def store_grant(row: EffectRow, grant: Grant, received_us: int) -> None:
    """Store `grant` on a locked effect; the caller records the entry with the reason."""
    row.permission, row.permission_basis, row.permission_ref, row.permission_until_us = grant
    row.changed_us = max(row.changed_us, received_us)
    writer.write_effects([row], [])


def change_permission(row: EffectRow, grant: Grant, received_us: int) -> None:
    """Store `grant` on a locked effect, and record the change in the journal."""
    kind = "effect.withheld" if grant.permission in _WITHHELD else "effect.granted"
    record = grant_facts(grant, {name: getattr(row, name) for name in _POLICY_COLUMNS})
    facts = entries.dump_sorted_json(
        record | ({"plan": row.plan_position} if row.plan_position is not None else {})
    )
    entries.record_system_entry(
        row.project_id,
        kind,
        event_id=entries.keyed_digest("granted", str(row.id), str(row.version)),
        text=entries.dump_sorted_json({"effect": row.id, **orjson.loads(facts)}),
        received_us=received_us,
        facts=facts,
        session=row.session_id,
        effect=row.id,
    )
    store_grant(row, grant, received_us)


_WITHHELD: Final = ("none", "pending", "denied")
_POLICY_COLUMNS: Final = (
    "policy_outcome",
    "policy_rule",
    "policy_tool_class",
    "policy_parts_digest",
    "policy_enforced",
)


def grant_facts(grant: Grant, policy_result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the journal facts of a grant and its policy result, without empty values."""
    record = {
        "permission": grant.permission,
        "basis": grant.basis,
        "ref": grant.ref,
        "until_us": grant.until_us,
    }
    record |= {name: policy_result.get(name) for name in _POLICY_COLUMNS}
    return {name: value for name, value in record.items() if value}


def plan_facts(intent: str, plan: Mapping[str, Any], grant: Grant | None) -> dict[str, Any]:
    """Return the journal facts of an accepted plan: all of its columns that no text gives.

    The repository's patterns, by which its ref was classified, are in the journal too.
    """
    facts: dict[str, Any] = {"intent": intent, "redactions": plan.get("redactions") or 0}
    if plan.get("undoes") is not None:
        facts["undoes"] = plan["undoes"]
    if grant is not None:
        return facts | grant_facts(grant, plan)
    return facts | {name: plan[name] for name in _POLICY_COLUMNS if plan.get(name)}


def agent_answer(effect: EffectRow, open_effect: UUID | None = None) -> str:
    """Return what the agent may do now: proceed | wait | blocked | done | ambiguous.

    Depends on state and permission only, and on `open_effect`: the effect to settle first.
    """
    if effect.state in ("compensated", "superseded"):
        return "done"
    if effect.state == "acknowledged":
        return "ambiguous" if effect.outcome == "unknown" else "done"
    if effect.state == "dispatched" or (effect.state == "failed" and effect.outcome == "unknown"):
        return "ambiguous"
    if open_effect is not None:
        return "ambiguous"
    if effect.permission == "granted":
        return "wait" if is_permission_expired(effect, now_us()) else "proceed"
    if effect.permission == "pending":
        return (
            "blocked" if is_permission_expired(effect, now_us()) else "wait"
        )  # an expired request blocks
    gone = effect.permission == "none" and effect.permission_basis in GONE_BASES
    return (
        "blocked" if gone or effect.permission == "denied" or effect.state == "failed" else "wait"
    )
