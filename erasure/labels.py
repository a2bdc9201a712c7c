"""Words for the states, subjects and counts of erasure requests."""

from typing import Any, Final

from erasure.models import ErasureRequest
from erasure.text_columns import KEPT_REASONS, TEXT_CLASSES

# On the preview, and in what the commands print.
COUNTS_MAY_DIFFER: Final = (
    "The erasure may erase a few more or fewer texts than its preview counts: texts that come or go"
    " after the count, and the entries that the erasure itself writes about the subject, such as"
    " that a person leaves a project."
)

# state -> (mark, name)
_STATES: Final = {
    "counting": ("planned", "counting the preview"),
    "counted": ("planned", "waits for a second person"),
    "confirmed": ("dispatched", "confirmed"),
    "running": ("dispatched", "being erased"),
    "scrubbing": ("ack", "erased, files being rewritten"),
    "done": ("ack", "erased"),
    "withdrawn": ("superseded", "withdrawn"),
}


def describe_state(row: ErasureRequest) -> dict[str, str]:
    """Return the mark and the name of a request's state."""
    mark, name = _STATES[row.state]
    return {"mark": mark, "name": name}


def describe_subject(row: ErasureRequest) -> dict[str, Any]:
    """Return what a request is about: a title of Gatebook's, and texts that people typed."""
    number = len(row.word_digests)
    if row.person is not None:
        title = f"Person {row.person.get_username()}"
    elif row.session is not None:
        title = f"Session {row.session}"
    else:
        title = f"{number} word{'s' if number != 1 else ''}"
    return {"title": title, "words": row.words}


def build_count_rows(counts: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    """Return the classes that have numbers, in the order of the preview."""
    return [
        {
            "name": name,
            **counts[text_class],
            "why": KEPT_REASONS.get(text_class, "") if counts[text_class]["kept"] else "",
        }
        for text_class, name in TEXT_CLASSES.items()
        if any(counts.get(text_class, {}).values())
    ]
