"""Which columns travel is decided column by column: whoever adds one is asked here."""

from typing import Final

import pytest
from django.db import models

from approvals.models import Exemption, Gate, Vote
from investigation.bundles.schema import EXPORTED_COLUMNS
from ledger.models import Attempt, Effect, Stop, Tool
from sessions.models import (
    Artifact,
    Checkpoint,
    Decision,
    Handoff,
    Item,
    Lease,
    ObservedFact,
    Session,
    Task,
)

pytestmark = pytest.mark.once
HOME: Final = {"id", "project", "session"}  # told once for all, or told beside the columns
# What else is told beside them, by a name or a pseudonym, and after it what stays: clocks of rules,
# and what lies in the journal anyway.
BESIDE: Final[dict[type[models.Model], tuple[set[str], set[str]]]] = {
    Session: (
        {
            "agent",
            "owner",
            "on_behalf_of",
            "repository",
            "parent",
            "branched_from",
            "merge_into",
            "merged_into",
        },
        {"fence", "start_by_us"},
    ),
    Task: ({"parent"}, set()),
    Item: ({"task"}, set()),
    Artifact: ({"effect"}, set()),
    Decision: ({"effect"}, set()),
    Handoff: ({"written_by", "accepted_by"}, set()),
    Checkpoint: (set(), set()),
    ObservedFact: (set(), set()),
    Lease: (
        {"task", "agent"},
        {
            "subject",
            "ttl_s",
            "progress_token",
            "quiet_until_us",
            "silent_since_us",
            "dead_at_us",
            "wedged_at_us",
        }
        | {"version"},
    ),
    Tool: (set(), {"breaker_failures", "breaker_pause_s", "declared_at"}),
    Effect: ({"agent", "task", "repository", "parent_effect", "compensates"}, {"imported"}),
    Attempt: ({"effect"}, set()),
    Gate: ({"effect", "agent", "policy_set", "requester", "session_owner", "agent_owner"}, set()),
    Vote: (
        {"gate"},
        {"user", "own"},
    ),  # the voter's pseudonym is a column, and whose a gate is stands with the gate
    Exemption: ({"granted_by"}, {"expired_position"}),
    Stop: ({"set_by"}, {"subject", "opened_position", "lifted_by", "lifted_at_us"}),
}


@pytest.mark.parametrize("model", EXPORTED_COLUMNS, ids=lambda model: model.__name__)
def test_every_column_travels_or_is_known_to_stay(model: type[models.Model]) -> None:
    beside, stays = BESIDE[model]
    there = {field.name for field in model._meta.concrete_fields}
    assert set(EXPORTED_COLUMNS[model]) | beside | stays | (HOME & there) == there
    assert not set(EXPORTED_COLUMNS[model]) & (beside | stays)
