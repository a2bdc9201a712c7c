"""Kinds of session events that timelines show beside effects."""

from typing import Final

OF_SESSION: Final = frozenset(
    {
        "lease.acquired",
        "lease.released",
        "lease.lost",
        "session.silent",
        "session.heard",
        "session.resumed",
        "session.started",
        "session.ended",
        "session.stuck",
        "session.recovered",
        "checkpoint.written",
        "handoff.written",
        "handoff.accepted",
        "artifact.recorded",
        "control.fired",
        "integrity.violation",
        "integrity.fenced",
        "integrity.conflict",
        "decision.recorded",
        "decision.concluded",
        "message.sent",
        "session.branched",
        "session.merged",
    }
)

# Kinds that only Gatebook records: an agent's report of the same kind is not shown as an event.
OURS: Final = frozenset(
    {
        "lease.acquired",
        "lease.released",
        "lease.lost",
        "session.silent",
        "session.heard",
        "session.resumed",
        "session.stuck",
        "session.recovered",
        "control.fired",
        "integrity.violation",
        "integrity.fenced",
        "integrity.conflict",
    }
)

# Leases are drawn for one session only; with several sessions, other events are marked.
OF_SEVERAL: Final = frozenset(
    kind
    for kind in OF_SESSION
    if not kind.startswith("lease.") and kind not in ("session.silent", "session.heard")
)
