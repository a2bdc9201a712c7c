"""The time that an entry of Gatebook itself states.

It is the time of its writing, except in a sample project, whose clock is simulated
(docs/decisions/0041-sample-project.md). Pages show it, so that all their times are of one clock.
"""

from typing import Any, Final

from django.db.models.functions import Coalesce

from journal.entries import SYSTEM_SOURCE
from journal.imported_entries import original_received_us

STATED_US: Final = Coalesce("occurred_us", "received_us")  # of entries that Gatebook wrote


def read_stated_us(entry: Any) -> int:
    """Return the time that an entry states; of an agent's or imported one that of its receipt."""
    if entry.source == SYSTEM_SOURCE and entry.occurred_us is not None:
        return int(entry.occurred_us)
    return original_received_us(entry.source, entry.facts, entry.received_us)
