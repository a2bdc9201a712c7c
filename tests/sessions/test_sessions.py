"""The verbs of sessions: open, touch, end, find."""

from uuid import UUID, uuid4

import pytest

from accounts.models import Agent
from journal.entries import RepeatedKey
from journal.models import Entry
from sessions import lookup, sessions
from sessions.models import ENDED, Session
from tests.sessions.command_factories import NOW_US, opened, origin, report, touched

pytestmark = pytest.mark.django_db


def _report(agent: Agent, kind: str, key: str, **values: object) -> None:
    identity = lookup.derive_session_id(agent.project_id, "s")
    sessions.apply_session_facts(
        [sessions.SessionFact(identity, "s", report(agent, key), kind, 1, dict(values))], {}
    )


def test_a_session_is_opened_under_the_position_of_its_entry(tester: Agent) -> None:
    session, created, agrees, _labelled = sessions.open_session(
        origin(tester, "k"), {"key": "s", "title": "build"}
    )
    assert (created, agrees) == (True, True)
    entry = Entry.objects.get(kind="session.started")
    assert session.opened_position == entry.position
    assert entry.session == session.id == lookup.derive_session_id(tester.project_id, "s")
    assert (session.mode, session.status, session.title) == ("one_shot", "running", "build")


def test_the_key_of_an_opening_is_used_once(tester: Agent) -> None:
    sessions.open_session(origin(tester, "k"), {"key": "s"})
    with pytest.raises(RepeatedKey):
        sessions.open_session(origin(tester, "k"), {"key": "s"})
    with pytest.raises(RepeatedKey):
        sessions.open_session(origin(tester, "k"), {"key": "another"})


def test_a_command_replaces_a_reported_description(tester: Agent) -> None:
    touched(tester)
    _report(tester, "session.started", "a", title="reported", branch="main")
    for key, title, created in (("b", "asked", True), ("c", "reported", False)):
        session, is_new, same, _labelled = sessions.open_session(
            origin(tester, key), {"key": "s", "title": title}
        )
        assert (session.title, is_new, same) == ("asked", created, created)


def test_a_command_describes_a_session_that_was_only_mentioned(tester: Agent) -> None:
    identity = touched(tester)
    session = opened(tester, "s", title="asked")
    assert session.id == identity
    assert (session.title, session.branch, session.mode) == ("asked", "", "one_shot")
    assert session.opened_position == 1, "the handle that pages have shown stays"


def test_no_later_report_describes_what_a_command_opened(tester: Agent) -> None:
    opened(tester, "s", title="asked")
    _report(tester, "session.started", "a", title="reported")
    assert Session.objects.get().title == "asked"


def test_the_first_end_by_command_precedes_every_report(tester: Agent) -> None:
    session = opened(tester)
    _report(tester, "session.ended", "a", status="failed")
    assert Session.objects.get().status == "failed"
    assert sessions.close_session(origin(tester, "zz"), session, "completed").status == "completed"
    assert sessions.close_session(origin(tester, "aa"), session, "cancelled").status == "completed"
    _report(tester, "session.ended", "0", status="cancelled")
    assert Session.objects.get().status == "completed"
    assert Entry.objects.filter(kind="session.ended").count() == 2, "what came too late is kept"


@pytest.mark.parametrize("status", ENDED)
def test_an_ended_session_is_not_waiting(tester: Agent, status: str) -> None:
    sessions.close_session(origin(tester), opened(tester), status)
    _report(tester, "session.waiting", "z")
    assert Session.objects.get().status == status


def test_the_latest_report_about_a_running_session_counts(tester: Agent) -> None:
    touched(tester)
    for kind, key in (
        ("session.suspended", "c"),
        ("session.waiting", "b"),
        ("session.resumed", "a"),
    ):
        _report(tester, kind, key)
    assert Session.objects.get().status == "suspended"


def test_touching_moves_the_clock_forward_only(tester: Agent) -> None:
    identity = touched(tester)
    for after_us in (50_000_000, 20_000_000):
        sessions.touch_sessions(
            report(tester, "x", received_us=NOW_US + after_us), {identity: "s"}, 9
        )
    row = Session.objects.get()
    assert row.seen_at_us == NOW_US + 50_000_000
    assert row.opened_position == 1


def test_being_seen_moves_the_clock_once_a_second_and_never_back(tester: Agent) -> None:
    session = touched(tester)
    seconds_us = []
    for after_us in (3_000_000, 3_999_999, 4_000_000, 2_000_000, 9_000_000):
        sessions.touch_session_nowait(tester.project_id, session, NOW_US + after_us)
        seconds_us.append(Session.objects.get().seen_at_us - NOW_US)
    assert seconds_us == [3_000_000, 3_000_000, 4_000_000, 4_000_000, 9_000_000]


def test_a_session_is_found_by_id_and_by_key_within_its_project(tester: Agent) -> None:
    session = opened(tester, "s")
    assert (
        lookup.load_session(tester.project_id, "s")
        == lookup.load_session(tester.project_id, str(session.id))
        == session
    )
    for project, reference in (
        (uuid4(), "s"),
        (uuid4(), str(session.id)),
        (tester.project_id, "t"),
    ):
        with pytest.raises(lookup.SessionNotFound):
            lookup.load_session(project, reference)


def test_a_key_may_have_the_form_of_an_id(tester: Agent) -> None:
    key = "0198f2aa-0000-7000-8000-000000000001"
    session = opened(tester, key)
    assert lookup.load_session(tester.project_id, key) == session
    assert session.id != UUID(key)


def test_locking_counts_and_returns_whether_the_session_exists(tester: Agent) -> None:
    session = opened(tester)
    assert sessions.lock_session_row(tester.project_id, session.id, NOW_US, new_effects=2)
    assert not sessions.lock_session_row(uuid4(), session.id, NOW_US, new_effects=2)
    sessions.add_effect_counts({session.id: 3})
    assert Session.objects.get().effect_count == 5


def test_a_session_is_never_its_own_parent(tester: Agent) -> None:
    touched(tester)
    identity = lookup.derive_session_id(tester.project_id, "s")
    fact = sessions.SessionFact(
        identity, "s", report(tester, "a"), "session.started", 1, {"parent": "s"}
    )
    sessions.apply_session_facts([fact], {"s": identity})
    assert Session.objects.get().parent_id is None


def test_the_objects_an_opening_names_must_exist(tester: Agent) -> None:
    with pytest.raises(sessions.UnknownParentSession):
        opened(tester, "s", parent="nobody")
    with pytest.raises(sessions.UnknownOwner):
        opened(tester, "s", owner="nobody")
    assert not Session.objects.exists()
