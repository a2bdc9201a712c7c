"""A plan whose body was erased: nothing can be compared with it, and no rule allows it for lack of
arguments."""

from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from approvals import exemptions
from approvals.gates.statuses import US
from db.clock import now_us
from ledger.models import Attempt
from tests.api.api_client import code
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario

pytestmark = pytest.mark.django_db
ALLOW = "name: basic\nrules:\n  - {id: all, title: Everything, match: {}, outcome: allow}\n"
NO_FORCE = (
    ALLOW + "  - {id: force, title: Force, match: {arguments: [{path: force, eq: true}]}, outcome: "
    "deny}\n"
)


def dispatch(inbox: InboxScenario, effect: dict[str, Any], **fields: Any) -> Any:
    """Dispatch with `fields`, or by the digest alone."""
    body = {"process": "p-1", **(fields or {"intent_digest": effect["intent_digest"]})}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body)


def approved(inbox: InboxScenario, **fields: Any) -> dict[str, Any]:
    planned = inbox.plan(**fields)
    assert inbox.answer(inbox.gate(planned), "reviewer").refusal is None
    return planned


def erase_plan(inbox: InboxScenario, planned: dict[str, Any]) -> None:
    """Erase the body of the plan as an administrator."""
    position = inbox.effect(planned).plan_position
    page = reverse("erase_body", args=[position])
    assert (
        inbox.organization.client("administrator").post(page, {"reason": "a ticket"}).status_code
        == 302
    )


def test_arguments_are_not_compared_with_a_plan_that_was_erased(inbox: InboxScenario) -> None:
    planned = approved(inbox, arguments={"ref": "main", "dry_run": True}, free_text=["dry_run"])
    erase_plan(inbox, planned)
    refused = dispatch(inbox, planned, arguments={"ref": "main"})
    assert (code(refused), "erased" in refused.json()["detail"]) == ((409, "INTENT_MISMATCH"), True)
    assert not Attempt.objects.exists()


@pytest.mark.parametrize("basis", ["policy", "ruling", "exemption"])
@pytest.mark.parametrize("erased", [True, False])
def test_rules_allow_no_plan_whose_arguments_were_erased(
    inbox: InboxScenario, basis: str, erased: bool
) -> None:
    """A rule that finds no arguments cannot distinguish a forced push from another."""
    if basis == "policy":
        inbox.rules(ALLOW)
    if basis == "exemption":
        with transaction.atomic():
            exemptions.create_exemption(
                inbox.project,
                tool="git.push",
                reason="a release is going on",
                ends_at_us=now_us() + 60 * US,
                user=inbox.user("administrator"),
                **proved(),
            )
    arguments = {"ref": "main", "force": erased}
    planned = (
        approved(inbox, arguments=arguments)
        if basis == "ruling"
        else inbox.plan(arguments=arguments)
    )
    assert inbox.effect(planned).permission_basis == basis
    inbox.rules(NO_FORCE)
    if not erased:
        assert dispatch(inbox, planned).status_code == 200
        return
    erase_plan(inbox, planned)
    refused = dispatch(inbox, planned)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "requirement_changed")
    assert not Attempt.objects.exists()
    assert inbox.effect(planned).permission == "none"
    assert (
        inbox.plan(arguments=arguments)["answer"] == "blocked"
    )  # planned again, the rules see it and deny


def test_a_plan_that_was_erased_is_permission_by_digest_while_nothing_else_changed(
    inbox: InboxScenario,
) -> None:
    planned = approved(inbox)
    erase_plan(inbox, planned)
    assert dispatch(inbox, planned).status_code == 200
