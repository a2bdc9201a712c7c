"""Labels of the controls (recovery/detectors.py): what each one finds, for pages."""

from typing import Final

CONTROL_LABELS: Final[dict[str, str]] = {
    "stale_context": "A handoff waits on something that is resolved",
    "completion_blindness": "Work continues for a task that is done",
    "state_drift": "Sources report different values of one fact",
    "handoff_overload": "A handoff is larger than the next worker should read",
}
