"""Resuming a session in the OpenAPI document."""

from typing import Any, Final

from api.openapi.operation import Endpoint, build_object_schema
from ledger.verdicts.table import VERDICT_ANSWERS as VERDICTS
from recovery.detectors import CONTROL_NAMES

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
    return {"type": "array", "items": build_object_schema(fields)}


_BLOCKING: Final = {
    "effect": _ID,
    "handle": _TEXT,
    "tool": _TEXT,
    "verdict": {"enum": list(VERDICTS)},
    "reason": _TEXT,
    "sentence": _TEXT,
}
ANSWERS: Final[dict[str, Any]] = {
    "Resume": build_object_schema(
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
            "repeats": _build_list_schema(effect=_ID, handle=_TEXT, tool=_TEXT, other=_OBJECT),
            "until_us": {"type": ["integer", "null"]},
            "stopped": _BOOLEAN,
            "too_many_open": _BOOLEAN,
            "now_us": _NUMBER,
            "crash_recovery": build_object_schema(
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
            "controls": _build_list_schema(control={"enum": list(CONTROL_NAMES)}, sentence=_TEXT),
            "history": _OBJECT,
        },
        cut={"type": "array", "items": _TEXT},
    ),
}
