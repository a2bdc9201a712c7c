"""A small story as facts, and the statuses of their results."""

from typing import Any

# One effect from plan to end, and the other facts of its session.
STORY: list[dict[str, Any]] = [
    {"kind": "session.started", "title": "Fix it", "repository": "acme/x", "parent": "above"},
    {"kind": "task.created", "task": "t", "title": "build"},
    {
        "kind": "effect.planned",
        "effect_key": "e",
        "tool": "bash",
        "arguments": {"command": "make"},
        "task": "t",
    },
    {"kind": "effect.dispatched", "effect_key": "e", "process": "p"},
    {
        "kind": "effect.acknowledged",
        "effect_key": "e",
        "outcome": "ok",
        "external_reference": "r",
        "result": "a\0b",
    },
    {"kind": "item.done", "task": "t", "item": "i"},
    {"kind": "task.done", "task": "t"},
    {
        "kind": "artifact.recorded",
        "type": "log",
        "sha256": "0" * 64,
        "size": 1,
        "media_type": "text/plain",
    },
    {"kind": "session.ended", "status": "completed"},
]


def make_items(
    facts: list[dict[str, Any]] | None = None, session: str = "s-1", **more: Any
) -> list[dict[str, Any]]:
    """Return `facts` as items with ids and a sequence."""
    chosen = STORY if facts is None else facts
    return [
        {"id": f"f-{n}", "session": session, "producer_seq": n, **fact, **more}
        for n, fact in enumerate(chosen)
    ]


def statuses(answer: Any) -> list[str]:
    return [result["status"] for result in answer.json()["results"]]
