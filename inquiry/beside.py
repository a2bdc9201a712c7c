"""Which facts of a session stand beside its effects in a timeline, and which of them only Gatebook finds."""

from typing import Final

OF_SESSION: Final = frozenset(
    {
        *("lease.acquired", "lease.released", "lease.lost", "session.silent", "session.heard", "session.resumed"),
        *("session.started", "session.ended", "session.stuck", "session.recovered", "checkpoint.written"),
        *("handoff.written", "handoff.accepted", "artifact.recorded", "control.fired", "integrity.violation"),
        *("integrity.fenced", "integrity.conflict", "decision.recorded", "decision.concluded", "message.sent"),
        *("session.branched", "session.merged"),
    }
)

# What only Gatebook finds: reported under one of these kinds it is an agent's word, and no mark of ours.
OURS: Final = frozenset(
    {
        *("lease.acquired", "lease.released", "lease.lost", "session.silent", "session.heard", "session.resumed"),
        *("session.stuck", "session.recovered", "control.fired"),
        *("integrity.violation", "integrity.fenced", "integrity.conflict"),
    }
)

# A lane of leases tells of one session; of several only what happened to each is marked.
OF_SEVERAL: Final = frozenset(
    kind for kind in OF_SESSION if not kind.startswith("lease.") and kind not in ("session.silent", "session.heard")
)
