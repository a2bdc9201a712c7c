"""Exemptions: what they cover, when they end, and their entries in the journal."""

import json
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from accounts import agents, people, projects
from accounts.models import Agent, Membership
from approvals import exemptions
from approvals.models import Exemption, ExemptionVote
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from journal.models import Body, Entry
from ledger.store.effect_rows import vendor_id
from tests.approvals.confirm_helpers import proved
from tests.approvals.policy_factories import wish
from tests.sessions.command_factories import opened, origin

pytestmark = pytest.mark.django_db
HOUR_US = 3_600_000_000
REASON = "The release train of Friday, INC-204."


@pytest.fixture
def ada(db: None, settings: Settings) -> Membership:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return people.add_project_member(
        projects.create_project("of the tests"), "ada", "operator", "slate-lantern-orbit-42"
    )


@pytest.fixture
def agent(ada: Membership) -> Agent:
    return agents.ensure_agent(ada.project, "deploy-7")


def granted(ada: Membership, tool: str = "git.push", hours: float = 1, **scope: Any) -> Exemption:
    ends = now_us() + int(hours * HOUR_US)
    return exemptions.create_exemption(
        ada.project, tool=tool, reason=REASON, ends_at_us=ends, user=ada.user, **scope, **proved()
    )


def covering(
    ada: Membership,
    asking: tuple[str, ...] | str = "push",
    session: UUID | None = None,
    **changes: Any,
) -> Any:
    return exemptions.find_exemption(
        ada.project_id, wish(**changes), asking, session or new_uuid7(), new_uuid7()
    )


def entry(kind: str) -> Entry:
    return Entry.objects.get(kind=kind)


def test_a_grant_is_in_the_journal_with_its_reason(ada: Membership) -> None:
    exemption = granted(ada, ref="v*")
    granted_entry = entry("exemption.granted")
    assert (granted_entry.actor, granted_entry.subject, granted_entry.position) == (
        ada.user.person.pseudonym,
        exemption.id,
        exemption.opened_position,
    )
    facts = json.loads(granted_entry.facts)
    assert facts.pop("password_at_us") == ExemptionVote.objects.get().password_at_us
    assert facts.pop("scope") == exemptions.digest_scope(vars(exemption))
    assert facts == {"ends_at_us": exemption.ends_at_us}
    body = json.loads(Body.objects.get(entry=granted_entry).text)
    assert (body["reason"], body["tool"], body["ref"], body["rule"]) == (
        REASON,
        "git.push",
        "v*",
        "",
    )
    assert Exemption.objects.get() == exemption


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tool": "  "}, "Name the tool"),
        ({"tool": "x" * 101}, "at most 100"),
        ({"ref": "a\u202eb"}, "printable"),
        ({"reason": "too short"}, "Give a reason"),
        ({"reason": " " * 40}, "Give a reason"),
        ({"hours": -1}, "within 30 days"),
        ({"hours": 31 * 24}, "within 30 days"),
    ],
)
def test_an_invalid_exemption_is_refused(
    ada: Membership, change: dict[str, Any], words: str
) -> None:
    hours = change.pop("hours", 1)
    fields = {"tool": "git.push", "reason": REASON} | change
    with pytest.raises(ChangeRefused, match=words), transaction.atomic():
        exemptions.create_exemption(
            ada.project, ends_at_us=now_us() + hours * HOUR_US, user=ada.user, **fields, **proved()
        )
    assert not Exemption.objects.exists()
    assert not Entry.objects.filter(kind="exemption.granted").exists()


def test_a_session_of_another_project_cannot_be_exempted(ada: Membership) -> None:
    other = opened(agents.ensure_agent(projects.create_project("elsewhere"), "stranger"))
    with pytest.raises(ChangeRefused, match="no such session"), transaction.atomic():
        granted(ada, session=other)


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        ({}, True),
        ({"tool": "*"}, True),
        (
            {
                "tool": "git.*",
                "repository": "w*",
                "ref": "refs/heads/*",
                "agent": "deploy-7",
                "rule": "push",
            },
            True,
        ),
        ({"tool": "mail.*"}, False),
        ({"rule": "pu*"}, True),
        ({"rule": "other"}, False),
        ({"agent": "deploy"}, False),
        ({"repository": "api"}, False),
        ({"ref": "main"}, True),
        ({"ref": "topic"}, False),
        ({"environment": "staging"}, False),
    ],
)
def test_an_exemption_covers_what_its_globs_match(
    ada: Membership, scope: dict[str, Any], covers: bool
) -> None:
    exemption = granted(ada, **scope)
    assert covering(ada) == (exemption if covers else None)


def test_one_query_finds_none_and_three_find_it(ada: Membership) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert covering(ada) is None
    assert len(queries) == 1
    exemption = granted(ada)
    granted(ada, hours=2)
    with CaptureQueriesContext(connection) as queries:
        assert covering(ada) == exemption
    assert len(queries) == 3  # the other rule asks the person that the session works for


def test_an_exemption_from_one_rule_does_not_suspend_another_rule(
    ada: Membership,
) -> None:
    granted(ada, rule="push")
    assert covering(ada, ("push",)) is not None
    assert covering(ada, ("push", "force-push")) is None
    assert covering(ada, ("",)) is None
    assert covering(ada, ()) is None
    unlimited = granted(ada, rule="")
    assert covering(ada, ("push", "force-push")) == covering(ada, ("",)) == unlimited


def test_an_exemption_of_a_session_covers_only_that_session(ada: Membership, agent: Agent) -> None:
    session = opened(agent)
    exemption = granted(ada, session=session)
    assert covering(ada, session=session.id) == exemption
    assert covering(ada) is None


def test_an_exemption_covers_nothing_of_another_project(ada: Membership) -> None:
    granted(ada)
    assert (
        exemptions.find_exemption(
            projects.create_project("elsewhere").id, wish(), "push", new_uuid7(), new_uuid7()
        )
        is None
    )


def test_an_expired_or_revoked_exemption_covers_nothing(ada: Membership) -> None:
    exemption = granted(ada)
    project = ada.project_id
    assert (
        exemptions.find_exemption(
            project, wish(), "push", new_uuid7(), new_uuid7(), exemption.ends_at_us - 1
        )
        == exemption
    )
    assert (
        exemptions.find_exemption(
            project, wish(), "push", new_uuid7(), new_uuid7(), exemption.ends_at_us
        )
        is None
    )
    assert exemptions.end_exemption(exemption, ada.user) is True
    assert covering(ada) is None
    assert exemptions.end_exemption(exemption, ada.user) is False
    assert entry("exemption.revoked").actor == ada.user.person.pseudonym


def test_every_use_is_counted_and_in_the_journal(ada: Membership, agent: Agent) -> None:
    exemption, effect, session = granted(ada), new_uuid7(), opened(agent)
    at = now_us()
    for key in ("one", "one", "two"):
        assert exemptions.use_exemption(
            exemption, origin(agent, key, received_us=at), effect, session.id
        )
    exemption.refresh_from_db()
    assert (exemption.uses, exemption.used_at_us) == (2, at)
    entries = Entry.objects.filter(kind="exemption.used")
    assert [(row.effect, row.session, row.subject) for row in entries] == [
        (effect, session.id, exemption.id)
    ] * 2


@pytest.mark.parametrize("how", ["ended", "revoked"])
def test_an_ended_exemption_cannot_be_used(ada: Membership, agent: Agent, how: str) -> None:
    exemption = granted(ada)
    at = exemption.ends_at_us if how == "ended" else now_us()
    if how == "revoked":
        exemptions.end_exemption(exemption, ada.user)
    assert not exemptions.use_exemption(exemption, origin(agent, received_us=at), new_uuid7())
    exemption.refresh_from_db()
    assert exemption.uses == 0
    assert not Entry.objects.filter(kind="exemption.used").exists()


def test_its_end_is_in_the_journal_once(ada: Membership) -> None:
    first, second, revoked = granted(ada), granted(ada, hours=2), granted(ada)
    exemptions.end_exemption(revoked, ada.user)
    assert exemptions.expire_exemptions(first.ends_at_us - 1) == 0
    assert exemptions.expire_exemptions(first.ends_at_us) == 1
    assert exemptions.expire_exemptions(second.ends_at_us) == 1
    assert exemptions.expire_exemptions(second.ends_at_us) == 0
    entries = Entry.objects.filter(kind="exemption.expired").order_by("position")
    assert [row.subject for row in entries] == [first.id, second.id]
    assert json.loads(entries[0].facts) == {"uses": 0, "ended_at_us": first.ends_at_us}


def test_one_sweep_records_a_batch_of_expiries_and_the_next_the_rest(
    ada: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exemptions, "_SWEEP_BATCH", 2)
    last = max(granted(ada).ends_at_us for _ in range(3))
    assert [exemptions.expire_exemptions(last) for _ in range(3)] == [2, 1, 0]
    with CaptureQueriesContext(connection) as queries:
        exemptions.expire_exemptions(last)
    assert len(queries) == 1, "recorded expiries are not read again"


COLUMNS = [str(field.column) for field in Exemption._meta.local_fields]


@pytest.mark.parametrize(
    ("column", "value", "constraint"),
    [
        ("tool", "''", "exemption_names_a_tool"),
        ("ends_at_us", "granted_at_us", "exemption_ends_within_thirty_days"),
        ("ends_at_us", "granted_at_us + 2592000000001", "exemption_ends_within_thirty_days"),
        ("used_at_us", "ends_at_us + 1", "exemption_is_used_before_it_ends"),
        ("uses", "-1", "exemption_uses_are_counted"),
    ],
)
def test_the_schema_refuses_a_grant_that_the_code_would_not_make(
    ada: Membership, column: str, value: str, constraint: str
) -> None:
    granted(ada)
    other = {"id": "%s", "in_force_at_us": "NULL", column: value}
    values = [other.get(name, name) for name in COLUMNS]
    copy = f"INSERT INTO approvals_exemption ({', '.join(COLUMNS)}) SELECT {', '.join(values)} FROM approvals_exemption"
    with (
        pytest.raises(DatabaseError, match=constraint),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(copy, [vendor_id(new_uuid7())])


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (
            "UPDATE approvals_exemption SET ends_at_us = ends_at_us + 1",
            "exemption_terms_never_change",
        ),
        ("UPDATE approvals_exemption SET rule = ''", "exemption_terms_never_change"),
        (
            "UPDATE approvals_exemption SET revoked_at_us = NULL",
            "exemption_terms_never_change",
        ),
        (
            "UPDATE approvals_exemption SET uses = uses - 1",
            "exemption_terms_never_change",
        ),
        ("DELETE FROM approvals_exemption", "exemption_is_never_deleted"),
    ],
)
def test_the_database_refuses_to_rewrite_a_grant(
    ada: Membership, agent: Agent, statement: str, constraint: str
) -> None:
    exemption = granted(ada, rule="push")
    exemptions.use_exemption(exemption, origin(agent, received_us=now_us()), new_uuid7())
    exemptions.end_exemption(exemption, ada.user)
    with (
        pytest.raises(DatabaseError, match=constraint),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    exemption.refresh_from_db()
    assert (exemption.uses, exemption.rule) == (1, "push")
    assert exemption.revoked_at_us is not None
