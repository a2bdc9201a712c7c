"""Leases as JSON."""

from typing import Any

from sessions.lease_queries import is_lease_live
from sessions.models import Lease


def lease_to_json(lease: Lease) -> dict[str, Any]:
    """Convert a lease to JSON, with its state at the time of its query.

    All times are the database's.
    """
    now_us = lease.now_us
    state = (
        "released"
        if lease.released_at_us is not None
        else "live"
        if is_lease_live(lease, now_us)
        else "expired"
    )
    return {
        "id": str(lease.id),
        "handle": f"l_{lease.opened_position}",
        "kind": lease.kind,
        "subject": lease.subject,
        "session": str(lease.session_id) if lease.session_id else None,
        "holder": lease.agent.name,
        "process": lease.process,
        "epoch": lease.epoch,
        "ttl_s": lease.ttl_s,
        "expires_at_us": lease.expires_at_us,
        "heartbeat_at_us": lease.heartbeat_at_us,
        "progress_at_us": lease.progress_at_us,
        "quiet_until_us": lease.quiet_until_us,
        "released_at_us": lease.released_at_us,
        "state": state,
        "takeovers": lease.takeovers,
        "version": lease.version,
    }
