"""What the tests of the API look at behind it."""

from journal.models import Body


def text_at(position: int | None) -> str:
    """The body of the entry at `position`, as it is stored."""
    assert position is not None
    return Body.objects.get(entry_id=position).text
