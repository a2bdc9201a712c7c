"""Every column is either exported or not: a new column fails until it is listed."""

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
HOME: Final = {"id", "project", "session"}  # exported once, or apart from the columns
# Columns exported as a name or a pseudonym, then columns that are not exported: clocks of rules, and
# what the journal contains.
APART_FROM_COLUMNS: Final[dict[type[models.Model], tuple[set[str], set[str]]]] = {
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
    Tool: (set(), {"breaker_failures", "breaker_pause_s", "declared_at", "declared_position"}),
    Effect: ({"agent", "task", "repository", "parent_effect", "compensates"}, {"imported"}),
    Attempt: ({"effect"}, set()),
    Gate: ({"effect", "agent", "policy_set", "requester", "session_owner", "agent_owner"}, set()),
    Vote: (
        {"gate"},
        {"user", "own"},
    ),  # the voter's pseudonym is a column, and the gate has its own
    Exemption: ({"granted_by"}, {"expired_position"}),
    Stop: ({"set_by"}, {"subject", "opened_position", "lifted_by", "lifted_at_us"}),
}


@pytest.mark.parametrize("model", EXPORTED_COLUMNS, ids=lambda model: model.__name__)
def test_every_column_is_exported_or_listed_as_not_exported(model: type[models.Model]) -> None:
    exported_apart, stays = APART_FROM_COLUMNS[model]
    there = {field.name for field in model._meta.concrete_fields}
    assert set(EXPORTED_COLUMNS[model]) | exported_apart | stays | (HOME & there) == there
    assert not set(EXPORTED_COLUMNS[model]) & (exported_apart | stays)
