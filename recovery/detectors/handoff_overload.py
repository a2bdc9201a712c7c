"""Detects a handoff that is larger than the next worker should read."""

from typing import Any, Final

from recovery.detectors.control_finding import ControlFinding
from sessions import handoffs

HANDOFF_OVERLOAD: Final = "handoff_overload"


def find_handoff_overload(handoff: Any) -> list[ControlFinding]:
    """Return a finding if the handoff has more bytes than are recommended."""
    if handoff.size <= handoffs.HANDOFF_BUDGET_BYTES:
        return []
    sentence = (
        f"The handoff has {handoff.size:,} bytes; at most {handoffs.HANDOFF_BUDGET_BYTES:,} are "
        "recommended."
        " The next worker may miss what matters most."
    )
    about = {
        "handoff": str(handoff.id),
        "bytes": handoff.size,
        "budget": handoffs.HANDOFF_BUDGET_BYTES,
    }
    return [ControlFinding(HANDOFF_OVERLOAD, str(handoff.id), sentence, about, subject=handoff.id)]
