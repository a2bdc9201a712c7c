"""Every verdict that the table can give has its words, and every row of the page is one that the
table has."""

from random import Random

import pytest

from ledger.states import (
    FAILURE_REASONS,
    OUTCOME_OF_STATE,
    PERMISSION_BASES,
    PERMISSIONS,
    RESOLUTIONS,
    STATES,
    TOOL_CLASSES,
)
from ledger.verdicts import labels, table
from ledger.verdicts.table import ToolProperties, Verdict, VerdictInput

pytestmark = pytest.mark.once
NOW = 1_000_000_000


def some(random: Random, *, deep: bool = True) -> VerdictInput:
    """A case like those that there are, and some that there are not."""
    state = random.choice(STATES)
    moments = (None, NOW - 10**9, NOW - 10**6, NOW + 10**6)
    yes = (False, True)
    return VerdictInput(
        state=state,
        outcome=random.choice(OUTCOME_OF_STATE[state]),
        failure_reason=random.choice(FAILURE_REASONS),
        permission=random.choice(PERMISSIONS),
        permission_basis=random.choice(PERMISSION_BASES),
        permission_until_us=random.choice(moments),
        same_intent=random.random() < 0.9,
        attempts=random.randrange(4),
        earlier_in_doubt=random.choice(yes),
        first_us=random.choice(moments),
        last_us=random.choice(moments),
        reference=random.choice(yes),
        precondition=random.choice(yes),
        later_on_resource=random.choice(yes),
        resolution=random.choice(RESOLUTIONS),
        resolved_attempt=random.randrange(4),
        late_evidence=random.random() < 0.2,
        probe=random.choice(table.PROBES),
        probed_us=random.choice(moments),
        probe_errors=random.randrange(7),
        is_stopped=random.random() < 0.05,
        lease_elsewhere=random.random() < 0.05,
        means=ToolProperties(
            tool_class=random.choice(TOOL_CLASSES),
            request_lifetime_s=300,
            key_window_s=random.choice((0, 100, 10_000)),
            probe=random.choice(yes),
            cancel_by=random.choice(("", "key", "reference")),
        ),
        compensation=some(random, deep=False) if deep and random.random() < 0.1 else None,
        undoing_failed=random.random() < 0.2,
    )


@pytest.fixture(scope="module")
def given() -> set[Verdict]:
    """The verdicts on eight thousand cases."""
    random = Random(4)
    return {table.decide_verdict(some(random), NOW) for _ in range(8_000)}


def test_every_verdict_has_its_row_and_its_words(given: set[Verdict]) -> None:
    for found in given:
        row = labels.ROW_BY_NUMBER[found.row]
        assert found.reason in row.reasons, found
        assert labels.ANSWER_LABELS[found.answer]
        assert labels.short_reason(found)
        assert labels.explain_verdict(found).endswith(".")
        assert labels.describe_changes(found)


def test_every_row_and_reason_of_the_page_can_be_given(given: set[Verdict]) -> None:
    listed = {(row.number, reason) for row in labels.VERDICT_ROWS for reason in row.reasons}
    assert listed == {(found.row, found.reason) for found in given}


def test_a_probe_that_decided_says_what_it_found() -> None:
    said = {
        answer: labels.explain_verdict(Verdict(answer, "PROBED_ABSENT", "21"))
        for answer in ("probe", "skip", "replay", "escalate")
    }
    assert said["skip"] == "A probe found it: it happened."
    assert "did not find it" in said["replay"]
    assert len(set(said.values())) == 4
