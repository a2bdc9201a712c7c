"""Helpers that acquire leases as a worker does and move their stored times."""

from typing import Any

from django.db.models import BigIntegerField, F, Value

from sessions.models import Lease
from tests.api.api_client import Caller


def hold(agent: Caller, session: str, process: str = "p-1", **more: Any) -> dict[str, Any]:
    """Acquire the lease on a session and return it."""
    answer = agent.post("/leases", {"session": session, "process": process, **more})
    assert answer.status_code == 201, answer.text
    lease: dict[str, Any] = answer.json()
    return lease


def pass_time(lease: dict[str, Any], seconds: int) -> None:
    """Move all stored times of a lease back, as if `seconds` had passed."""
    times = (
        *(
            "acquired_at_us",
            "heartbeat_at_us",
            "progress_at_us",
            "expires_at_us",
            "dead_at_us",
            "wedged_at_us",
        ),
        *("quiet_until_us", "silent_since_us"),
    )
    shift = Value(seconds * 1_000_000, output_field=BigIntegerField())
    Lease.objects.filter(id=lease["id"]).update(**{name: F(name) - shift for name in times})


def expire(lease: dict[str, Any]) -> None:
    """Move the times of a lease back until it is expired."""
    pass_time(lease, lease["ttl_s"] + 1)
