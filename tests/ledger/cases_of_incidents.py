"""Rows that violate the constraints of incidents, and rows that satisfy them."""

from typing import Final

from investigation.models import Incident, IncidentEntry, IncidentMember
from tests.ledger.rows_by_hand import Row, World
from tests.ledger.schema_cases import Case, check_case, unique_case

GONE: Final[Row] = {"removed_at_us": 6, "removed_position": 6}


def _first(world: World) -> Incident:
    incident: Incident = Incident.objects.first() or world.write(Incident)
    return incident


INCIDENTS: Final[dict[str, Case]] = {
    "incident_state_is_known": check_case(Incident, {"state": "lost"}, {"state": "contained"}),
    "incident_is_closed_at_a_time": check_case(
        Incident, {"state": "closed"}, {"state": "closed", "closed_at_us": 6}, {"closed_at_us": 6}
    ),
    "incident_changes_after_it_was_opened": check_case(
        Incident, {"changed_at_us": 4}, {"changed_at_us": 6}
    ),
    "incident_title_is_in_the_journal": check_case(
        Incident,
        {"opened_position": 9, "title_position": 8},
        {"opened_position": 9, "title_position": 9},
    ),
    "incident_version_counts_up": check_case(Incident, {"version": 0}, {"version": 2}),
    "incident_member_is_unique": unique_case(
        IncidentMember, lambda w: {"incident": _first(w), "number": 7}, lambda _: GONE
    ),
    "incident_member_kind_is_known": check_case(
        IncidentMember, {"kind": "mood"}, {"kind": "entry"}
    ),
    "incident_member_leaves_after_it_joined": check_case(
        IncidentMember,
        {"removed_at_us": 6},
        GONE,
        {"removed_position": 6},
        {**GONE, "removed_at_us": 4},
        {**GONE, "removed_position": 5},
    ),
    "incident_entry_is_listed_once": unique_case(
        IncidentEntry, lambda w: {"incident": _first(w), "position": 7}, lambda _: {"position": 8}
    ),
}
