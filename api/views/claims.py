"""POST /claims: lease the most urgent work that is free."""

from typing import Any, Final
from uuid import UUID

from api import writer_refusals
from api.endpoint import Call, post_command
from api.idempotency import Reply
from api.schemas import leases
from api.serializers.leases import lease_to_json
from journal.entries import Origin
from sessions import claims
from sessions.lease_queries import LeaseLost

CLAIM_RETRY_AFTER_S: Final = 5


@post_command(leases.Claim, "lease.acquired")
def claim_work(call: Call, fields: leases.Claim, origin: Origin, _path: dict[str, UUID]) -> Reply:
    """Lease the most urgent matching ready task or orphaned session, if any."""
    criteria = claims.ClaimCriteria(
        fields.process,
        tuple(fields.kinds or ("session", "task")),
        fields.repository,
        fields.labels,
        fields.ttl_s,
    )
    try:
        lease = claims.claim_next_work(origin, criteria)
    except LeaseLost as lost:
        return writer_refusals.build_lease_lost(lost.lease)
    if lease is None:
        return Reply(
            200, {"claimed": None}, kept=False, headers={"Retry-After": str(CLAIM_RETRY_AFTER_S)}
        )
    claimed_work: dict[str, Any] = {"kind": lease.kind, "session": str(lease.session_id)}
    if lease.task_id is not None:
        claimed_work["task"] = str(lease.task_id)
    resume = f"/api/v1/sessions/{lease.session_id}/resume"
    return Reply(
        200,
        {"claimed": claimed_work, "lease": lease_to_json(lease), "resume": resume},
        kept=False,
    )
