"""The glossary names the vocabulary of the code, and pages show it."""

from typing import Final

import pytest
from django.test import Client

from accounts.models import ROLES
from approvals.gates.statuses import GATE_STATUSES, POLICY_MODES, VOTE_ANSWERS
from journal.models import LANES
from ledger.states import PERMISSIONS, STATES, TOOL_CLASSES
from ledger.verdicts.table import VERDICT_ANSWERS
from pages.help.glossary import load_glossary
from sessions.models import MODES, STATUSES

VOCABULARY: Final = {
    "permission": PERMISSIONS,
    "effect state": STATES,
    "gate status": GATE_STATUSES,
    "vote": VOTE_ANSWERS,
    "tool class": TOOL_CLASSES,
    "verdict": VERDICT_ANSWERS,
    "lane": tuple(LANES),
    "role": ROLES,
    "policy mode": POLICY_MODES,
    "session mode": MODES,
    "session status": STATUSES,
}


@pytest.mark.once
@pytest.mark.parametrize("kind", VOCABULARY)
def test_every_value_of_the_code_is_a_term(kind: str) -> None:
    terms = {row.term.lower() for row in load_glossary()}
    spellings = {
        value: {value, value.replace("_", " "), value.replace("_", "-")}
        for value in VOCABULARY[kind]
    }
    missing = [value for value, spelling in spellings.items() if not spelling & terms]
    assert not missing, f"docs/glossary.md has no term for these values of {kind}."


@pytest.mark.once
def test_terms_are_sorted_and_each_has_one_sentence() -> None:
    terms = [row.term for row in load_glossary()]
    assert terms == sorted(terms, key=str.casefold)
    assert len(terms) == len(set(terms))
    for row in load_glossary():
        assert row.meaning.endswith("."), row
        assert 3 < len(row.meaning.split()) < 45, row


@pytest.mark.django_db
def test_help_links_the_glossary_and_every_user_may_read_it() -> None:
    browser = Client()
    assert 'href="/help/glossary/"' in browser.get("/help/").content.decode()
    page = browser.get("/help/glossary/").content.decode()
    for row in load_glossary():
        assert row.term in page
