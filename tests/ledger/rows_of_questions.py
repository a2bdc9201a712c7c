"""Valid rows of saved queries, exports and alerts (see tests/ledger/rows_by_hand.py)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django.db import models

from investigation.models import Alert, AlertChannel, Export, SavedQuery
from notifications.models import NotificationChannel

if TYPE_CHECKING:
    from tests.ledger.rows_by_hand import World

QUESTIONS: Final[dict[type[models.Model], Callable[["World"], dict[str, Any]]]] = {
    SavedQuery: lambda w: {
        "project": w.project,
        "owner": w.user,
        "name": f"name {w.new()}",
        "text": "effect",
        "saved_position": 5,
        "created_at_us": 5,
        "changed_at_us": 5,
    },
    Export: lambda w: {
        "project": w.project,
        "asked_by": w.user,
        "text": "effect",
        "format": "csv",
        "position": 5,
        "asked_at_us": 5,
    },
    Alert: lambda w: {
        "project": w.project,
        "query": w.write(SavedQuery),
        "text": "effect",
        "place": 5,
        "checked_at_us": 5,
        "turned_on_at_us": 5,
    },
    AlertChannel: lambda w: {"alert": w.write(Alert), "channel": w.write(NotificationChannel)},
}
