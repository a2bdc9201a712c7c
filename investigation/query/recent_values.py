"""Values of a field in the newest rows of an entity, as a query writes them, with their counts."""

from collections import Counter
from typing import Any, Final

from accounts.models import Project
from db.clock import now_us
from investigation.query import facets
from investigation.query.entity_registry import Entity
from investigation.query.fields.types import ComputedChoice, Field
from journal.models import Entry

RECENT_ROWS: Final = 1_000  # Number of newest rows whose values are counted.


def count_recent_values(entity: Entity, known_field: Field, project: Project) -> "Counter[Any]":
    """Count a field's values in the newest rows. One query, which the order's index serves.

    Named rows are counted by name, other rows by id. The counter is empty for a choice whose value
    is not a column.
    """
    is_split = known_field.name == entity.split
    column = known_field.shows or known_field.path
    if not column or (isinstance(known_field, ComputedChoice) and not is_split):
        return Counter()
    extra = facets.STATE_COLUMNS.get(entity.name, ()) if is_split else ()
    rows: Any = (
        Entry.objects.filter(project=project.id)
        if entity.name == "event"
        else entity.select_project_rows(project)
    )
    order = "-position" if entity.name == "event" else "-opened_position"
    newest = rows.order_by(order).values_list(column, *extra)[:RECENT_ROWS]
    if not is_split:
        return Counter(value for (value,) in newest if value not in ("", None))
    values, *columns = list(zip(*newest, strict=True)) or [()] * (1 + len(extra))
    return Counter(facets.derive_shown_values(entity, values, columns, now_us()))
