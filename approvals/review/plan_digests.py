"""What plans are about, as keyed digests.

A process keeps these digests and never the text of a plan: its body may be erased. A plan never
changes, so it is read once. Callers name only plans whose bodies are stored.
"""

import secrets
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from approvals.review.call_kinds import call_kind
from approvals.review.identities import find_identities
from db import raw_sql
from journal import summaries

MAX_KEPT: Final = 4_000  # plans whose digests a process keeps, about 1 kB each
_PLAN_CHARACTERS: Final = 2_048  # characters of a plan that are read
_HEADS: Final = (
    f"SELECT body.entry_id, substr(body.text, 1, {_PLAN_CHARACTERS})"
    " FROM {} CROSS JOIN journal_body AS body WHERE body.entry_id = wanted.key"
)
_compute_blake2b: Final = partial(blake2b, digest_size=12, key=secrets.token_bytes(32))
Identities = Mapping[str, frozenset[bytes]]  # digests of what a call names, by kind


class StoredPlan(NamedTuple):
    """Where the body of a plan is, and the tool that it calls."""

    position: int
    tool: str


class PlanDigest(NamedTuple):
    """Digests of the kind of a call (empty for an unreadable plan) and of what it names."""

    kind: bytes
    identities: Identities


def load_plan_digests(plans: Mapping[Any, StoredPlan]) -> dict[Any, PlanDigest]:
    """Return the digests of plans by the id of their gate; at most one query."""
    kept = dict(_kept_digests)  # another thread may clear the cache
    digests = {gate: kept[gate] for gate in plans if gate in kept}
    unread = {plan.position: gate for gate, plan in plans.items() if gate not in digests}
    if unread:
        heads = raw_sql.fetch_rows(
            _HEADS.format(raw_sql.wanted_table("bigint")), [raw_sql.to_array_parameter(unread)]
        )
        read = {
            unread[position]: digest_plan_head(plans[unread[position]].tool, head)
            for position, head in heads
        }
        if len(_kept_digests) + len(read) > MAX_KEPT:
            _kept_digests.clear()
        _kept_digests.update(read)
        digests |= read
    return digests


_kept_digests: dict[Any, PlanDigest] = {}  # by id of the gate, as the caller has it


def digest_plan_head(tool: str, head: str) -> PlanDigest:
    """Return the digests of a plan from the beginning of its body."""
    plan = summaries.parse_body(head) or summaries.parse_body(summaries.close_truncated_json(head))
    return digest_plan(tool, plan) if plan else PlanDigest(b"", {})


def digest_plan(tool: str, plan: Mapping[str, Any]) -> PlanDigest:
    """Return the digests of a plan."""
    names, switches, programs, push = call_kind(tool, plan)
    kind = repr((sorted(names), sorted(switches), sorted(programs), push))
    identities = digest_identities(find_identities(plan.get("arguments")))
    return PlanDigest(compute_digest("call", kind), identities)


def digest_target(repository: str, ref: str, resource: str) -> Identities:
    """Return the digests of what the target of a request names."""
    if not ref and not resource:
        return {}
    target = {"repository": repository, "ref": ref, "resource": resource}
    return digest_identities(find_identities(None, target))


def digest_identities(named: Mapping[str, frozenset[str]]) -> Identities:
    """Return the digests of what a call names."""
    return {
        kind: frozenset(compute_digest(kind, value) for value in values)
        for kind, values in named.items()
    }


def compute_digest(kind: str, value: str) -> bytes:
    """Return what stands for a value in memory; each process has a key of its own. About 1 µs."""
    return _compute_blake2b(f"{kind} {value}".encode("utf-8", "surrogatepass")).digest()
