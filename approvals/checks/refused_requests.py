"""Find the refused requests that are about the same thing as a request of a page.

A plan that was erased is about its target only (approvals/review/plan_digests.py).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from approvals import labels
from approvals.checks.checked_request import CheckedRequest
from approvals.gates.statuses import US
from approvals.review.identities import find_identities
from approvals.review.plan_digests import (
    Identities,
    PlanDigest,
    StoredPlan,
    compute_digest,
    digest_target,
    load_plan_digests,
)
from approvals.review.warnings import REFUSED_STATUSES
from db import raw_sql
from db.clock import now_us

WINDOW_US: Final = 90 * 24 * 3600 * US  # before the request, in which refusals are compared
_MAX_REFUSALS: Final = 200  # newest of a page
# Kinds that say what a call is about. A host or a version is shared by unrelated calls.
_TELLING_KINDS: Final = (
    *(
        "recipient",
        "order",
        "customer",
        "person",
        "account",
        "ticket",
        "table",
        "file",
        "volume",
        "commit",
    ),
    *("branch", "target"),
)
_REFUSED: Final = (
    "SELECT gate.id, gate.opened_position, gate.status, gate.tool, gate.session_id, gate.agent_id,"
    " gate.decided_at_us, gate.repository_name, effect.ref, effect.resource, body.entry_id"
    " FROM approvals_gate AS gate JOIN ledger_effect AS effect ON effect.id = gate.effect_id"
    " LEFT JOIN journal_body AS body ON body.entry_id = gate.plan_position"
    f" WHERE gate.project_id = %s AND gate.status IN {REFUSED_STATUSES}"
    " AND gate.decided_at_us BETWEEN %s AND %s AND gate.tool IN ({tools})"
    # A denial that its voter took back at once counts as none (approvals/voting/undo.py).
    " AND NOT EXISTS (SELECT 1 FROM journal_entry AS undone WHERE undone.effect = gate.effect_id"
    " AND undone.subject = gate.id AND undone.kind = 'gate.undone' AND undone.lane = 'system')"
    f" ORDER BY gate.decided_at_us DESC LIMIT {_MAX_REFUSALS}"
)


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A refused request, with the words of the last refusing vote."""

    gate: UUID
    position: int
    status: str
    tool: str
    session: UUID
    agent: UUID
    ended_at_us: int
    voter: str = ""
    reason: str = ""

    @property
    def word(self) -> str:
        """How it was refused: denied, denied for this session, or changes requested."""
        return labels.STATUS_LABELS[self.status][0]

    def __str__(self) -> str:
        return f"g_{self.position}"


class _RefusedRow(NamedTuple):
    """A row of _REFUSED; ids are as the database returns them."""

    gate: Any
    position: int
    status: str
    tool: str
    session: Any
    agent: Any
    ended_at_us: int
    repository: str
    ref: str
    resource: str
    body: int | None  # journal position of the plan; None if it was erased


class RefusedRequests:
    """Refused requests, newest first, and which of them are about a thing."""

    def __init__(self, rows: Sequence[_RefusedRow], identities: Sequence[Identities]) -> None:
        self._rows, self._identities = rows, identities
        self._numbers: dict[tuple[str, str, bytes], list[int]] = defaultdict(list)
        for number, (row, by_kind) in enumerate(zip(rows, identities, strict=True)):
            for kind, digests in by_kind.items():
                for digest in digests:
                    self._numbers[row.tool, kind, digest].append(number)

    def find_related(self, request: CheckedRequest) -> tuple[RefusedRequest, str, str] | None:
        """Return the newest earlier refusal about the same thing, with the kind and value. Pure.

        It has the same tool, and names the same recipient, order, file, table or the like.
        """
        if not self._rows:
            return None
        named = find_identities(
            request.arguments,
            {"repository": request.repository, "ref": request.ref, "resource": request.resource},
        )
        values: dict[str, dict[bytes, str]] = {
            kind: {compute_digest(kind, value): value for value in named[kind]}
            for kind in _TELLING_KINDS
            if kind in named
        }
        own: Identities = {kind: frozenset(by_digest) for kind, by_digest in values.items()}
        numbers = {
            number
            for kind, digests in own.items()
            for digest in digests
            for number in self._numbers.get((request.tool, kind, digest), ())
        }
        for number in sorted(numbers):
            row, other = self._rows[number], self._identities[number]
            if row.position >= request.opened_position:
                continue
            for kind, digests in own.items():
                shared = digests & other.get(kind, frozenset())
                if shared and not (kind == "branch" and _differs_otherwise(own, other)):
                    return _build_refusal(row), kind, min(values[kind][each] for each in shared)
        return None


def load_refused_requests(project: UUID, requests: Sequence[CheckedRequest]) -> RefusedRequests:
    """Load the newest refusals of the tools of these requests. At most two queries."""
    if not requests:
        return RefusedRequests((), ())
    asked_us = [request.requested_at_us for request in requests]
    tools = sorted({request.tool for request in requests})
    rows = raw_sql.fetch_rows(
        _REFUSED.format(tools=", ".join(["%s"] * len(tools))),
        [raw_sql.vendor_id(project), min(asked_us) - WINDOW_US, now_us(), *tools],
    )
    refused = list(map(_RefusedRow._make, rows))
    gates = [raw_sql.read_uuid(row.gate) for row in refused]
    plans = load_plan_digests(
        {
            gate: StoredPlan(row.body, row.tool)
            for gate, row in zip(gates, refused, strict=True)
            if row.body is not None
        }
    )
    return RefusedRequests(
        refused,
        [
            {
                **plans.get(gate, _UNREAD).identities,
                **digest_target(row.repository, row.ref, row.resource),
            }
            for gate, row in zip(gates, refused, strict=True)
        ],
    )


_UNREAD: Final = PlanDigest(b"", {})  # of an erased plan


def _differs_otherwise(own: Identities, other: Identities) -> bool:
    """True if both name things of one kind, and not the same: another commit on the same branch."""
    return any(
        own.get(kind) and other.get(kind) and not own[kind] & other[kind]
        for kind in _TELLING_KINDS
        if kind != "branch"
    )


def _build_refusal(row: _RefusedRow) -> RefusedRequest:
    return RefusedRequest(
        raw_sql.read_uuid(row.gate),
        row.position,
        row.status,
        row.tool,
        raw_sql.read_uuid(row.session),
        raw_sql.read_uuid(row.agent),
        row.ended_at_us,
    )
