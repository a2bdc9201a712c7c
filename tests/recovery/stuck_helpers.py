"""What the tests of stuck sessions share: workers at the endpoints, and hours that pass without anybody
waiting."""

from typing import Any, Final
from uuid import UUID

from django.db.models import BigIntegerField, F, Value

from ledger.models import Attempt, Effect
from monitoring.models import JobHeartbeat, StuckEpisode
from sessions.models import Handoff, HeartbeatMinute, Lease, Session
from tests.api.api_client import Caller

US: Final = 1_000_000
_CLOCKS: Final[dict[Any, tuple[str, ...]]] = {
    Session: ("created_at_us", "start_by_us", "seen_at_us"),
    Lease: (
        *(
            "acquired_at_us",
            "heartbeat_at_us",
            "progress_at_us",
            "expires_at_us",
            "dead_at_us",
            "wedged_at_us",
        ),
        "quiet_until_us",
    ),
    Handoff: ("created_at_us", "accept_by_us", "accepted_at_us"),
    Effect: ("received_us", "changed_us", "deadline_us", "permission_until_us", "dispatched_at_us"),
    Attempt: ("received_us", "heard_us", "dispatched_at_us"),
    StuckEpisode: ("since_us", "seen_us", "raised_us", "snoozed_until_us"),
}


def pass_by(seconds: int, agent: str = "") -> None:
    """Let `seconds` have passed for everybody's sessions, or for one agent's: what rules count from
    goes back.

    But gates: what they bind is fixed by the law of the schema.
    """
    for model, columns in _CLOCKS.items():
        rows = model.objects.all()
        if agent:
            whose = {Session: "agent__name", Attempt: "effect__session__agent__name"}
            rows = rows.filter(**{whose.get(model, "session__agent__name"): agent})
        if model is Lease:  # what was released is over for good, by the law of the schema
            rows = rows.filter(released_at_us__isnull=True)
        # Left to itself Django takes the number for four bytes, and PostgreSQL would be sent the
        # rest of it.
        gone = Value(seconds * US, output_field=BigIntegerField())
        rows.update(**{column: F(column) - gone for column in columns})
    for row in (
        HeartbeatMinute.objects.none() if agent else HeartbeatMinute.objects.order_by("minute")
    ):  # one after the other: PostgreSQL minds where they would meet
        HeartbeatMinute.objects.filter(id=row.id).update(minute=row.minute - seconds // 60)


def sweeps_go_on(seconds: int) -> None:
    """Let our own jobs have run until a moment ago, whatever has passed: there was no outage."""
    JobHeartbeat.objects.update(paused_until_us=0, every_us=seconds * US)


def leased(agent: Caller, key: str = "s-1", **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A session of mode leased and the lease on it."""
    session = agent.session(key, mode="leased", **more)
    answer = agent.post("/leases", {"session": session["id"], "process": "w-1"})
    assert answer.status_code == 201, answer.text
    return session, answer.json()


def heartbeat(agent: Caller, lease: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One heartbeat of a lease's holder, and what the endpoint says of it."""
    answer = agent.client.post(
        "/heartbeats",
        json={"heartbeats": [{"lease": lease["id"], "epoch": lease["epoch"], **more}]},
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["results"][0]
    return found


def open_rules(session: str | None = None) -> dict[str, bool]:
    """The open episodes by rule, and whether each was raised."""
    rows = StuckEpisode.objects.filter(cleared_us__isnull=True)
    if session is not None:
        rows = rows.filter(session=UUID(session))
    return {row.rule: row.raised_us is not None for row in rows}
