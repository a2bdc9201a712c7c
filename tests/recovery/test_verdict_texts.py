"""Every verdict of the table has its texts, and every row of the page is a row of the table."""

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


def random_case(random: Random, *, deep: bool = True) -> VerdictInput:
    """Return a random input, possibly one that cannot occur."""
    state = random.choice(STATES)
    moments = (None, NOW - 10**9, NOW - 10**6, NOW + 10**6)
    either = (False, True)
    return VerdictInput(
        state=state,
        outcome=random.choice(OUTCOME_OF_STATE[state]),
        failure_reason=random.choice(FAILURE_REASONS),
        permission=random.choice(PERMISSIONS),
        permission_basis=random.choice(PERMISSION_BASES),
        permission_until_us=random.choice(moments),
        same_intent=random.random() < 0.9,
        attempts=random.randrange(4),
        earlier_in_doubt=random.choice(either),
        first_us=random.choice(moments),
        last_us=random.choice(moments),
        reference=random.choice(either),
        precondition=random.choice(either),
        later_on_resource=random.choice(either),
        resolution=random.choice(RESOLUTIONS),
        resolved_attempt=random.randrange(4),
        late_evidence=random.random() < 0.2,
        probe=random.choice(("", "hit", "miss", "several", "error")),
        probed_us=random.choice(moments),
        probe_errors=random.randrange(7),
        is_stopped=random.random() < 0.05,
        lease_elsewhere=random.random() < 0.05,
        means=ToolProperties(
            tool_class=random.choice(TOOL_CLASSES),
            request_lifetime_s=300,
            key_window_s=random.choice((0, 100, 10_000)),
            probe=random.choice(either),
            cancel_by=random.choice(("", "key", "reference")),
        ),
        compensation=random_case(random, deep=False) if deep and random.random() < 0.1 else None,
        undoing_failed=random.random() < 0.2,
    )


@pytest.fixture(scope="module")
def verdicts() -> set[Verdict]:
    """The verdicts of 8,000 random cases."""
    random = Random(4)
    return {table.decide_verdict(random_case(random), NOW) for _ in range(8_000)}


def test_every_verdict_has_its_row_and_its_texts(verdicts: set[Verdict]) -> None:
    for verdict in verdicts:
        row = labels.ROW_BY_NUMBER[verdict.row]
        assert verdict.reason in row.reasons, verdict
        assert labels.ANSWER_LABELS[verdict.answer]
        assert labels.short_reason(verdict)
        assert labels.explain_verdict(verdict).endswith(".")
        assert labels.describe_changes(verdict)


def test_every_row_and_reason_of_the_page_can_be_given(verdicts: set[Verdict]) -> None:
    listed = {(row.number, reason) for row in labels.VERDICT_ROWS for reason in row.reasons}
    assert listed == {(verdict.row, verdict.reason) for verdict in verdicts}


def test_the_text_of_a_decisive_probe_names_its_result() -> None:
    sentences = {
        answer: labels.explain_verdict(Verdict(answer, "PROBED_ABSENT", "21"))
        for answer in ("probe", "skip", "replay", "escalate")
    }
    assert sentences["skip"] == "A probe found it: it happened."
    assert "did not find it" in sentences["replay"]
    assert len(set(sentences.values())) == 4
