"""Rows that violate the constraints of code hosts, and rows that satisfy them."""

from typing import Final

from hooks.models import (
    AgentIdentity,
    CodeHostDelivery,
    CodeHostEvent,
    CodeHostSource,
    EventMatch,
)
from ledger.models import Effect
from tests.ledger.schema_cases import Case, check_case, unique_case

_WITHDRAWN: Final = {"status": "withdrawn", "decided_by": "p_1", "decided_us": 1, "reason": "no"}

CODE_HOSTS: Final[dict[str, Case]] = {
    "effect_confirmation_names_its_host": check_case(
        Effect,
        {"confirmed_by": "github"},
        {"confirmed_by": "github", "confirmed_mark": "m"},
        {"confirmed_by": "else", "confirmed_mark": "m"},
    ),
    "code_host_source_name_is_unique": unique_case(
        CodeHostSource, lambda _: {"name": "acme"}, lambda _: {"host": "gitlab"}
    ),
    "code_host_source_host_is_known": check_case(CodeHostSource, {"host": "forge"}),
    "code_host_source_has_a_name": check_case(CodeHostSource, {"name": ""}),
    "code_host_source_counts_are_numbers": check_case(
        CodeHostSource, {"secret_generation": 0}, {}, {"refused_count": -1}
    ),
    "code_host_delivery_is_stored_once": unique_case(
        CodeHostDelivery,
        lambda w: {
            "source": CodeHostSource.objects.first() or w.write(CodeHostSource),
            "delivery_key": "d",
        },
        lambda _: {"delivery_key": "e"},
    ),
    "code_host_delivery_has_an_id": check_case(
        CodeHostDelivery, {"delivery_key": ""}, {}, {"event": ""}
    ),
    "code_host_event_kind_is_known": check_case(CodeHostEvent, {"kind": "star"}),
    "code_host_event_status_is_known": check_case(
        CodeHostEvent, {"status": "lost"}, {"status": "matched"}
    ),
    "code_host_event_outside_has_a_finding": check_case(
        CodeHostEvent, {"status": "outside"}, {"status": "outside", "finding_position": 1}
    ),
    "code_host_event_settles_a_finding": check_case(
        CodeHostEvent, {"settled_us": 1}, {"settled_us": 1, "finding_position": 1}
    ),
    "event_match_is_one_per_effect": unique_case(
        EventMatch,
        lambda w: {
            "event": CodeHostEvent.objects.first() or w.write(CodeHostEvent),
            "effect": w.effect,
        },
        lambda w: {"effect": w.write(Effect)},
    ),
    "event_match_status_is_known": check_case(EventMatch, {"status": "perhaps"}),
    "event_match_is_withdrawn_by_a_person": check_case(
        EventMatch, {"status": "withdrawn"}, _WITHDRAWN, {**_WITHDRAWN, "reason": ""}
    ),
    "agent_identity_is_listed_once": unique_case(
        AgentIdentity, lambda _: {"value": "bot"}, lambda _: {"host": "gitlab"}
    ),
    "agent_identity_host_is_known": check_case(AgentIdentity, {"host": "forge"}),
    "agent_identity_kind_is_known": check_case(AgentIdentity, {"kind": "name"}),
    "agent_identity_has_a_value": check_case(AgentIdentity, {"value": ""}),
}
