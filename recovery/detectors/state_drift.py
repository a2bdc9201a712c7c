"""Detects sources that report different current values of one fact."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from recovery.detectors.control_finding import MAX_FINDINGS, ControlFinding

STATE_DRIFT: Final = "state_drift"


def find_state_drift(drifting: Mapping[str, Sequence[Any]]) -> list[ControlFinding]:
    """Return the facts whose sources disagree."""
    findings = []
    for name, rows in list(drifting.items())[:MAX_FINDINGS]:
        values = sorted(rows, key=lambda row: str(row.source))
        sources = [row.source for row in values]
        key = "|".join([name, *(f"{row.source}={row.digest}" for row in values)])
        sentence = (
            f"{len(values)} sources report different current values of {name}. Check before acting."
        )
        about = {"fact": name, "sources": sources, "positions": [row.position for row in values]}
        findings.append(ControlFinding(STATE_DRIFT, key, sentence, about))
    return findings
