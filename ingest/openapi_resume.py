"""Resuming a session in the OpenAPI document."""

from typing import Any, Final

from ingest.endpoints import Endpoint, with_fields
from inquiry.controls import NAMES
from ledger.verdicts import ANSWERS as VERDICTS

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_TRUTH: Final = {"type": "boolean"}
_OBJECT: Final = {"type": "object"}
_ID: Final = {"type": "string", "format": "uuid"}

ENDPOINTS: Final = (
    Endpoint(
        "get",
        "/sessions/{session}/resume",
        "resumeSession",
        "Return whether the session can be resumed safely, and its state for the next worker. At"
        " most 32 KiB.",
        {200: "Resume"},
        query=("process",),
        tag="sessions",
    ),
)


def _list_of(**fields: Any) -> dict[str, Any]:
    return {"type": "array", "items": with_fields(fields)}


_BLOCKING: Final = {
    "effect": _ID,
    "handle": _TEXT,
    "tool": _TEXT,
    "verdict": {"enum": list(VERDICTS)},
    "reason": _TEXT,
    "sentence": _TEXT,
}
ANSWERS: Final[dict[str, Any]] = {
    "Resume": with_fields(
        {
            "session": _OBJECT,
            "safe": _TRUTH,
            "sentence": _TEXT,
            "because": _list_of(**_BLOCKING),
            "done": _list_of(
                effect=_ID,
                handle=_TEXT,
                tool=_TEXT,
                sentence=_TEXT,
                unheard=_TRUTH,
                changed_us=_NUMBER,
            ),
            "until_us": {"type": ["integer", "null"]},
            "stopped": _TRUTH,
            "too_many_open": _TRUTH,
            "now_us": _NUMBER,
            "crash_recovery": with_fields(
                {
                    "open_effects": _list_of(**_BLOCKING, row=_TEXT),
                    "open_effects_in_all": _NUMBER,
                    "by_verdict": _OBJECT,
                    "incomplete_decisions": {"type": "array", "items": _OBJECT},
                    "handoff": {"type": ["object", "null"]},
                }
            ),
            "messages": {"type": "array", "items": _OBJECT},
            "working_state": _OBJECT,
            "controls": _list_of(control={"enum": list(NAMES)}, sentence=_TEXT),
            "history": _OBJECT,
        },
        cut={"type": "array", "items": _TEXT},
    ),
}
