"""The dispatched arguments are the planned ones, also those that the intent leaves out."""

from typing import Any

import pytest

from ledger.models import Attempt
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario

pytestmark = pytest.mark.django_db


def dispatch(inbox: InboxScenario, effect: dict[str, Any], **fields: Any) -> Any:
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", {"process": "p-1", **fields})


def approved(inbox: InboxScenario, **fields: Any) -> dict[str, Any]:
    planned = inbox.plan(**fields)
    assert inbox.answer(inbox.gate(planned), "reviewer").refusal is None
    return planned


@pytest.mark.parametrize("arguments", [{}, {"dry_run": False}, {"dry_run": True, "confirm": False}])
def test_free_text_of_the_plan_cannot_be_left_out_of_the_dispatch(
    inbox: InboxScenario, arguments: dict[str, bool]
) -> None:
    """The card showed dry_run; the dispatch sends arguments without it and without `free_text`."""
    inbox.declare("shell.run", "reversible")
    planned_arguments: dict[str, Any] = {"command": "deploy", "dry_run": True}
    planned = approved(
        inbox, tool="shell.run", arguments=planned_arguments, free_text=["dry_run", "confirm"]
    )
    free_text = list(arguments)  # left out of the intent, so that its digest is the plan's
    other = {"command": "deploy", **arguments}
    assert code(dispatch(inbox, planned, arguments=other, free_text=free_text)) == (
        409,
        "INTENT_MISMATCH",
    )
    assert not Attempt.objects.exists()
    assert (
        dispatch(inbox, planned, arguments=planned_arguments, free_text=["dry_run"]).status_code
        == 200
    )


def test_arguments_that_the_plan_left_to_their_default_are_as_they_were_planned(
    inbox: InboxScenario,
) -> None:
    inbox.agent.session("s-1")
    body = {"session": "s-1", "effect_key": "e-1", "tool": "git.push", "free_text": ["note"]}
    planned = inbox.agent.post("/effects", body).json()
    inbox.answer(inbox.gate(planned), "reviewer")
    assert dispatch(inbox, planned, arguments={}).status_code == 200
