"""Valid rows of incidents (see tests/ledger/rows_by_hand.py)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django.db import models

from investigation.models import Incident, IncidentEntry, IncidentMember

if TYPE_CHECKING:
    from tests.ledger.rows_by_hand import World

INCIDENTS: Final[dict[type[models.Model], Callable[["World"], dict[str, Any]]]] = {
    Incident: lambda w: {
        "project": w.project,
        "opened_position": w.new(),
        "title_position": w.last_number,
        "opened_by": w.user,
        "opened_at_us": 5,
        "changed_at_us": 5,
    },
    IncidentMember: lambda w: {
        "project": w.project,
        "incident": w.write(Incident),
        "kind": "effect",
        "number": w.new(),
        "added_by": w.user,
        "added_at_us": 5,
        "added_position": 5,
    },
    IncidentEntry: lambda w: {"incident": w.write(Incident), "position": w.new()},
}
