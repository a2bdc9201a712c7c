"""Rows that violate the constraints of saved queries, exports and alerts, and rows that satisfy them."""

from typing import Final

from investigation.models import Alert, AlertChannel, Export, SavedQuery
from notifications.models import NotificationChannel
from tests.ledger.rows_by_hand import Row, World
from tests.ledger.schema_cases import Case, check_case, unique_case

DONE: Final[Row] = {"state": "done", "size": 5, "ended_at_us": 6, "sha256": "a" * 64}


def _first_of_both(world: World) -> Row:
    return {
        "alert": Alert.objects.first() or world.write(Alert),
        "channel": NotificationChannel.objects.first() or world.write(NotificationChannel),
    }


QUESTIONS: Final[dict[str, Case]] = {
    "saved_query_name_is_unique_for_its_owner": unique_case(
        SavedQuery, lambda _: {"name": "one"}, lambda _: {"name": "two"}
    ),
    "saved_query_has_a_name_and_a_text": check_case(
        SavedQuery, {"name": ""}, {"name": "x", "text": "gate"}, {"text": ""}
    ),
    "saved_query_changes_after_it_was_saved": check_case(
        SavedQuery, {"version": 0}, {"version": 2, "changed_at_us": 6}, {"changed_at_us": 4}
    ),
    "export_format_is_known": check_case(Export, {"format": "pdf"}, {"format": "ndjson"}),
    "export_state_is_known": check_case(Export, {"state": "lost"}, {"state": "running"}),
    "export_has_a_query": check_case(Export, {"text": ""}, {"text": "gate"}),
    "export_that_is_done_has_a_file": check_case(
        Export,
        {"state": "done"},
        DONE,
        {**DONE, "size": None},
        {**DONE, "sha256": ""},
        {**DONE, "ended_at_us": None},
    ),
    "alert_only_moves_forward": check_case(
        Alert, {"place": -1}, {"place": 0}, {"checks": -1}, {"failures": -1}
    ),
    "alert_that_is_stopped_says_why": check_case(
        Alert,
        {"stopped_at_us": 6},
        {"stopped_at_us": 6, "stopped_because": "slow"},
        {"stopped_because": "slow"},
    ),
    "alert_channel_is_chosen_once": unique_case(
        AlertChannel,
        _first_of_both,
        lambda w: {"channel": w.write(NotificationChannel, target="other@example.org")},
    ),
}
