"""Resuming a session in the OpenAPI document."""

from typing import Any, Final

from ingest.endpoints import Endpoint, with_fields
from inquiry.controls import NAMES
from ledger.verdicts import ANSWERS as VERDICTS

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_BOOLEAN: Final = {"type": "boolean"}
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


def _build_list_schema(**fields: Any) -> dict[str, Any]:
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
            "safe": _BOOLEAN,
            "sentence": _TEXT,
            "because": _build_list_schema(**_BLOCKING),
            "done": _build_list_schema(
                effect=_ID,
                handle=_TEXT,
                tool=_TEXT,
                sentence=_TEXT,
                unheard=_BOOLEAN,
                changed_us=_NUMBER,
            ),
            "until_us": {"type": ["integer", "null"]},
            "stopped": _BOOLEAN,
            "too_many_open": _BOOLEAN,
            "now_us": _NUMBER,
            "crash_recovery": with_fields(
                {
                    "open_effects": _build_list_schema(**_BLOCKING, row=_TEXT),
                    "open_effects_in_all": _NUMBER,
                    "by_verdict": _OBJECT,
                    "incomplete_decisions": {"type": "array", "items": _OBJECT},
                    "handoff": {"type": ["object", "null"]},
                }
            ),
            "messages": {"type": "array", "items": _OBJECT},
            "working_state": _OBJECT,
            "controls": _build_list_schema(control={"enum": list(NAMES)}, sentence=_TEXT),
            "history": _OBJECT,
        },
        cut={"type": "array", "items": _TEXT},
    ),
}
