"""Stored rows that the tests of the API read."""

from journal.models import Body


def select_body_text(position: int | None) -> str:
    """Return the stored body of the entry at `position`."""
    assert position is not None
    return Body.objects.get(entry_id=position).text
