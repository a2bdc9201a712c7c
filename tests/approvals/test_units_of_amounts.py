"""The unit of an amount, as the arguments name it; never a guessed one."""

from typing import Any

import pytest

from approvals.checks.quantities import NO_UNIT, find_unit
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_batch import plainly


@pytest.mark.parametrize(
    ("name", "arguments", "unit"),
    [
        ("amount", {"amount": 2300, "currency": "EUR"}, "currency EUR"),
        ("totalAmount", {"totalAmount": "2300", "currency": "eur"}, "currency eur"),
        ("amount_usd", {"amount_usd": 5, "currency": "EUR"}, "USD"),
        ("amountUsd", {"amountUsd": 5}, "USD"),
        ("price_cents", {"price_cents": 2300}, "cents"),
        ("price_cents", {"price_cents": 2300, "currency": "EUR"}, "cents, currency EUR"),
        ("amount_minor", {"amount_minor": 2300, "currency": "EUR"}, "minor, currency EUR"),
        ("fee", {"fee": 3, "fee_currency": "CHF", "currency": "EUR"}, "currency CHF"),
        ("size", {"size": 20, "unit": "GiB"}, "unit GiB"),
        ("amount", {"amount": 2300}, NO_UNIT),
        ("refundAmount", {"refundAmount": 25}, NO_UNIT),
        ("value", {"value": 2300}, ""),  # may be anything
        ("payment_id", {"payment_id": 884311}, ""),
        ("refund_count", {"refund_count": 3}, ""),
        ("payment_terms_days", {"payment_terms_days": 30}, ""),
        ("amount_pct", {"amount_pct": 5}, ""),
        ("eur_amount", {"eur_amount": 2}, ""),  # the name says it
        ("amount", {"amount": 2300, "currencyCode": "EUR"}, ""),  # sent, under another name
        ("amount", {"amount": 2, "iso_currency": "EUR"}, ""),
        ("amount_currency", {"amount_currency": 978, "amount": 5}, ""),
        ("amount", {"amount": "23.00 EUR", "currency": "EUR"}, ""),  # names its own
        ("amount", {"amount": True, "currency": "EUR"}, ""),
        ("amount", {"amount": 5, "currency": "whatever the customer asks for"}, ""),
        ("amount", {"amount": 5, "currency": 978}, ""),
        ("order", {"order": 884311, "currency": "EUR"}, ""),
        ("replicas", {"replicas": 3, "unit": "GiB"}, ""),
        ("usd", {"usd": 5}, ""),  # the name says it
        ("currency", {"currency": "EUR"}, ""),
    ],
)
def test_the_unit_is_what_the_arguments_name(
    name: str, arguments: dict[str, Any], unit: str
) -> None:
    assert find_unit(name, arguments) == unit


def test_the_card_shows_the_unit_beside_the_amount(inbox: InboxScenario, rita: Reviewer) -> None:
    arguments = {"order": "88-1", "amount": 2300, "currency": "EUR"}
    html = rita.page(url_of(inbox.gate(inbox.plan(arguments=arguments))))
    assert "amount 2300 currency EUR" in plainly(html)
    assert "Amount 2 300, currency EUR" in plainly(html)
    html = rita.page(url_of(inbox.gate(inbox.plan("e-3", arguments={"amount": 2300}))))
    assert "amount 2300 no unit sent" in plainly(html)
    hostile = {"amount": 2300, "currency": "<b>EUR"}
    html = rita.page(url_of(inbox.gate(inbox.plan("e-2", arguments=hostile))))
    assert 'class="unit"' not in html
