"""Endpoint for heartbeats of leases."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponseBase

from api.endpoint import (
    authenticate_request,
    build_json_response,
    convert_to_struct,
    handle_errors,
    parse_body_object,
    transact,
)
from api.idempotency import Reply
from api.schemas import leases
from sessions import heartbeats as sessions_heartbeats
from sessions.lease_queries import (
    AppliedHeartbeat,
    Heartbeat,
)


@handle_errors("POST")
def post_heartbeats(request: HttpRequest) -> HttpResponseBase:
    """Record heartbeats of several leases. Repeatable, so no Idempotency-Key."""
    call = authenticate_request(request)
    fields = convert_to_struct(parse_body_object(request).value, leases.Heartbeats)
    heartbeats = [
        Heartbeat(UUID(heartbeat.lease), heartbeat.epoch, heartbeat.progress, heartbeat.quiet_s)
        for heartbeat in fields.heartbeats
    ]
    results: list[dict[str, Any]] = []

    def run() -> Reply:
        accepted = sessions_heartbeats.record_heartbeats(
            call.project, call.token.agent, heartbeats, call.received_us
        )
        results[:] = [_heartbeat_to_json(accepted, heartbeat) for heartbeat in heartbeats]
        lost = {
            (heartbeat.lease, heartbeat.epoch)
            for heartbeat in heartbeats
            if (heartbeat.lease, heartbeat.epoch) not in accepted
        }
        sessions_heartbeats.record_lost_heartbeats(
            call.project, call.token.agent, sorted(lost), call.received_us
        )
        return Reply(200, {"results": results})

    return build_json_response(200, transact(run, lambda: None).body)


def _heartbeat_to_json(
    accepted: dict[tuple[UUID, int], AppliedHeartbeat], heartbeat: Heartbeat
) -> dict[str, Any]:
    lease = accepted.get((heartbeat.lease, heartbeat.epoch))
    if lease is None:
        return {"lease": str(heartbeat.lease), "status": "lost", "expires_at_us": None}
    return {"lease": str(heartbeat.lease), "status": "ok", "expires_at_us": lease.expires_at_us}
