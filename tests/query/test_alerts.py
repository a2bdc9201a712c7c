"""Saved queries that tell of new matches: turned on at their page, asked by the job, heard of by
letter."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.core.management import call_command
from django.db import connection, transaction
from django.urls import reverse
from pytest_django import Settings

from approvals import exemptions
from db.clock import now_us
from display import time_limit
from investigation.alerts import alert_runner, alerts
from investigation.fulltext import indexer
from investigation.models import Alert, SavedQuery
from investigation.query import execute
from journal import outbox, settled_position
from journal.models import Entry, Outbox
from ledger.models import Effect
from notifications import channels
from notifications.models import Notification, NotificationChannel
from tests.api.api_client import Caller
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import Desk
from tests.approvals.notification_helpers import Killed, tick
from tests.pages.people import House
from tests.pages.sample_data import doors
from tests.query.test_repeats import did

pytestmark = pytest.mark.django_db
SILENT: dict[str, Any] = dict.fromkeys(channels.TOPIC_FLAGS, False)
Watch = Callable[..., SavedQuery]


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Within a test's transaction PostgreSQL calls nothing settled; tests/journal/test_horizon.py
    is about that."""

    def last() -> int:
        return Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0

    for one in (settled_position, indexer):
        monkeypatch.setattr(one, "load_settled_position", last)
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture
def team(house: House) -> NotificationChannel:
    """An address of the project's own; the operator, the reviewer and the neighbour have one each."""
    boss = house.members["administrator"].user
    for name in ("operator", "reviewer"):
        own = house.members[name].user
        channels.add_channel(
            house.project, "email", f"{name}@example.org", boss, person=own, **SILENT
        )
    neighbour = house.neighbour.user
    channels.add_channel(
        house.other, "email", "neighbour@example.org", neighbour, person=neighbour, **SILENT
    )
    return channels.add_channel(house.project, "email", "team@example.org", boss, **SILENT)


@pytest.fixture
def watch(house: House, team: NotificationChannel) -> Watch:
    """Save a query of the operator's and turn its alerts on, by the pages."""

    def save(
        text: str,
        name: str = "Watched",
        *,
        to: tuple[NotificationChannel, ...] = (),
        shared: bool = False,
    ) -> Any:
        owner = house.client("operator")
        owner.post(
            reverse("saved_queries"), {"name": name, "q": text, "shared": "1" if shared else ""}
        )
        made = SavedQuery.objects.get(name=name)
        url = reverse("saved_query_alerts", args=[made.pk])
        page = owner.post(
            url, {"do": "on", "channel": [str(one.pk) for one in to]}, follow=True
        ).content.decode()
        assert "one notification per new match" in page, page
        return made

    return save


@pytest.fixture
def stranger(house: House) -> Iterator[Caller]:
    """The neighbour's agent at its endpoints."""
    with doors(house.other_token.agent) as caller:
        yield caller


def told() -> list[tuple[str, str]]:
    """What the next minute tells: the receivers and subjects of its letters."""
    call_command("run_alerts", verbosity=0)
    tick()
    letters = [(letter.to[0], str(letter.subject)) for letter in mail.outbox]
    mail.outbox.clear()
    return sorted(letters)


def plan(agent: Caller, key: str, **fields: Any) -> dict[str, Any]:
    """Plan an effect that differs from every other one."""
    return agent.plan(key, arguments={"of": key}, **fields)


def handle(effect: dict[str, Any]) -> str:
    return f"e_{Effect.objects.get(id=effect['id']).opened_position}"


def test_a_new_match_is_told_once_to_its_owner_and_old_ones_never(
    house: House, agent: Caller, stranger: Caller, watch: Watch
) -> None:
    agent.session("s-1")
    stranger.session("s-1")
    old = plan(agent, "old")
    saved = watch("effect tool:git.push")
    assert told() == []
    new = plan(agent, "new")
    plan(stranger, "theirs")
    plan(agent, "other", tool="git.fetch")
    agent.dispatch(old)
    call_command("run_alerts", verbosity=0)
    tick()
    (letter,) = mail.outbox
    assert (letter.to, letter.subject) == (
        ["operator@example.org"],
        "Gatebook: 1 new effect: “Watched”",
    )
    assert str(letter.body).startswith(f"{handle(new)}.\nQuery: effect tool:git.push\n")
    mail.outbox.clear()
    agent.dispatch(new)
    agent.acknowledge(new)
    assert told() == []

    entry = Entry.objects.get(kind="alert.raised")
    assert (entry.project, entry.subject, entry.actor) == (house.project.id, saved.pk, "gatebook")
    assert Outbox.objects.get(topic="alert").deduplication_key == Notification.objects.get().key
    address = str(letter.body).split()[-1]
    assert re.search(r"asof%3A%23\d+%402", address)
    found = house.client("operator").get(address[address.index("/search/") :]).content.decode()
    assert handle(new) in found
    assert "planned" in found.partition("<tbody")[2]  # as it stood then
    page = unescape(
        house.client("operator").get(reverse("saved_query", args=[saved.pk])).content.decode()
    )
    assert f"1 new effect, {handle(new)}" in " ".join(page.split())
    assert "asof%3A%23" in page

    off = {"do": "off"}
    url = reverse("saved_query_alerts", args=[saved.pk])
    assert house.client("operator").post(url, off).status_code == 302
    plan(agent, "later")
    assert told() == []
    assert not Alert.objects.exists()
    kinds = (
        Entry.objects.filter(kind__startswith="alert.")
        .order_by("position")
        .values_list("kind", flat=True)
    )
    assert list(kinds) == ["alert.turned_on", "alert.raised", "alert.turned_off"]


def test_what_time_alone_makes_match_is_told_and_told_again_when_it_comes_back(
    agent: Caller, watch: Watch
) -> None:
    agent.session("s-1")
    silent = plan(agent, "silent")
    watch("effect is:unknown", "Unknown")
    watch("session seq(effect.dispatched -> !effect.acknowledged within 10m)", "No answer")
    watch("effect state:dispatched since:30d", "Sent")
    agent.dispatch(silent)
    assert told() == [("operator@example.org", "Gatebook: 1 new effect: “Sent”")]
    with time_machine.travel(timedelta(days=2) + _now(), tick=False):
        subjects = {subject for _to, subject in told()}
        assert subjects == {"Gatebook: 2 saved queries have new matches"}
        assert told() == []
        agent.acknowledge(silent)
        assert told() == []
        unknown = Alert.objects.get(query__name="Unknown")
        assert list(alerts.known_positions(unknown)) == []
    # What is forgotten would be told again.
    assert alerts.merge_known([1, 2, 3], of=[1, 2], matching=[2, 5]) == [3, 2, 5]


def test_gates_exemptions_sessions_and_words_are_watched_as_well(desk: Desk, watch: Watch) -> None:
    gates = watch("gate is:waiting", "Gates")
    for name, text in (
        ("Leave", "exemption is:live"),
        ("Sessions", "session any(effect: tool:git.push)"),
    ):
        watch(text, name)
    words = watch("effect zebra", "Words")
    gate = desk.gate(desk.plan(arguments={"note": "a zebra"}))
    until, boss = now_us() + 10**10, desk.user("operator")
    with transaction.atomic():
        granted = exemptions.create_exemption(
            desk.project, tool="x", reason="for the drill", ends_at_us=until, user=boss, **proved()
        )
    call_command("run_alerts", verbosity=0)
    tick()
    (letter,) = mail.outbox
    assert letter.subject == "Gatebook: 3 saved queries have new matches"
    for told_of in (
        "1 new gate: “Gates”",
        f"g_{gate.opened_position}",
        "1 new exemption: “Leave”",
        "1 new session:",
    ):
        assert told_of in str(letter.body)
    assert f"x_{granted.opened_position}." in str(letter.body)
    mail.outbox.clear()
    call_command("update_search_index", verbosity=0)  # what is not read yet is not passed over
    assert told() == [("operator@example.org", "Gatebook: 1 new effect: “Words”")]
    desk.answer(gate, "reviewer", "deny", "not today")
    assert alert_runner.run_alerts().notified == 0
    known = {one.query_id: list(alerts.known_positions(one)) for one in Alert.objects.all()}
    assert (known[gates.pk], len(known[words.pk])) == ([], 1)


def test_what_was_done_again_is_told_of_when_it_was_compared(
    house: House, agent: Caller, watch: Watch
) -> None:
    for text in ("effect duplicate:call", "session repeats:>=2"):
        watch(text, text)
    agent.session("s-1")
    for key in ("one", "two"):
        did(agent, key, "s-1")
    assert told() == []
    call_command("update_search_index", verbosity=0)
    assert told() == [("operator@example.org", "Gatebook: 2 saved queries have new matches")]


def _now() -> Any:
    return datetime.fromtimestamp(now_us() / 1_000_000, UTC)


def test_a_shared_query_tells_whom_its_owner_chose_until_it_is_private_again(
    house: House, agent: Caller, watch: Watch, team: NotificationChannel
) -> None:
    agent.session("s-1")
    saved = watch("event kind:effect.planned", shared=True, to=(team,))
    plan(agent, "e-1")
    both = ["operator@example.org", "team@example.org"]
    assert [to for to, _subject in told()] == both
    changed = {"name": "Watched", "q": saved.text, "version": "1"}
    assert (
        house.client("operator").post(reverse("saved_query", args=[saved.pk]), changed).status_code
        == 302
    )
    plan(agent, "e-2")
    assert [to for to, _subject in told()] == both[:1]
    changed |= {"q": "effect tool:git.push", "version": "2"}
    house.client("operator").post(reverse("saved_query", args=[saved.pk]), changed)
    plan(agent, "e-3")
    assert told() == []  # asked otherwise it begins anew
    plan(agent, "e-4")
    assert told() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]
    house.members["operator"].delete()
    plan(agent, "e-5")
    assert told() == []
    assert "no longer a member" in Alert.objects.get().stopped_because


def test_a_kill_between_loses_nothing_and_tells_nothing_twice(
    agent: Caller, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.session("s-1")
    watch("effect tool:git.push")
    plan(agent, "e-1")
    before = Alert.objects.values().get()

    def killed(*_arguments: Any, **_options: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "queue_delivery", killed)
        with pytest.raises(Killed), transaction.atomic():
            alert_runner.run_alerts()
    assert Alert.objects.values().get() == before
    assert not Entry.objects.filter(kind="alert.raised").exists()
    look = alert_runner.run_alerts()
    assert (look.checks, look.notified) == (1, 1)  # and killed before anybody sent it
    stale = Alert(**before)
    assert not alerts.store_check(
        stale, alerts.CheckResult(before["place"] + 9, now_us(), "effect", [], [1])
    )  # another was quicker
    assert told() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]
    assert told() == []


def _never_end() -> None:
    """Ask what the database itself has to stop; of the test's transaction nothing is lost by that."""
    point = transaction.savepoint()
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT 1 FROM c) SELECT count(*) FROM c"
            )
    finally:  # past Django's cursor, which asks nothing more when the time is over
        connection.connection.execute(f'ROLLBACK TO SAVEPOINT "{point}"')


def test_a_query_that_takes_too_long_is_stopped_told_once_and_keeps_nobody_waiting(
    house: House, agent: Caller, watch: Watch, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    agent.session("s-1")
    slow, quick = watch("effect tool:slow*", "Slow"), watch("effect tool:git.push", "Quick")
    monkeypatch.setattr(time_limit, "SQLITE_STEPS", 1_000)
    understand, look = execute.compile_query, alert_runner._check_alert

    def endless(text: str, *arguments: Any) -> Any:
        if "slow" in text:
            _never_end()
        return understand(text, *arguments)

    def limited(alert: Alert, *arguments: Any) -> bool:
        # For the slow one alone: on a busy machine the quick one may take as long, and that would
        # be no fault of it.
        settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.5 if alert.query_id == slow.pk else 60.0
        return look(alert, *arguments)

    monkeypatch.setattr(execute, "compile_query", endless)
    monkeypatch.setattr(alert_runner, "_check_alert", limited)
    for number in range(alerts.MAX_FAILURES):
        plan(agent, f"e-{number}")
        letters = told()
        assert ("operator@example.org", "Gatebook: 1 new effect: “Quick”") in letters
    assert letters == [
        ("operator@example.org", "Gatebook: 1 new effect: “Quick”"),
        ("operator@example.org", "Gatebook: The alerts of “Slow” were stopped"),
    ]
    plan(agent, "last")
    assert [subject for _to, subject in told()] == ["Gatebook: 1 new effect: “Quick”"]
    owner = house.client("operator")
    page = owner.get(reverse("saved_query", args=[slow.pk])).content.decode()
    assert "The query takes longer than 0.5 s." in page
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.5
    refused = owner.post(reverse("saved_query_alerts", args=[slow.pk]), {"do": "on"}, follow=True)
    assert "The query takes longer" in refused.content.decode()
    assert Alert.objects.get(query=quick).failures == 0


def test_alerts_are_refused_with_a_sentence(
    house: House, team: NotificationChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "MAX_ALERTS", 1)
    owner = house.client("operator")

    def on(name: str, text: str, who: Any = owner) -> str:
        who.post(reverse("saved_queries"), {"name": name, "q": text})
        url = reverse("saved_query_alerts", args=[SavedQuery.objects.get(name=name).pk])
        return unescape(
            who.post(url, {"do": "on", "channel": [str(team.pk)]}, follow=True).content.decode()
        )

    assert "Alerts cannot watch groups" in on("Groups", "effect | group tool")
    assert "Alerts cannot watch a past moment" in on("Past", "effect asof:1d")
    assert "No recipient:" in on(
        "Alone", "effect", house.client("viewer")
    )  # no address, and not shared
    assert not Alert.objects.exists()
    assert "Alerts are on." in on("First", "effect")
    assert "already on" in on("First", "effect")
    assert "already has 1 queries with alerts" in on("Second", "effect")
    url = reverse("saved_query_alerts", args=[SavedQuery.objects.get(name="First").pk])
    for other in ("reviewer", "administrator", "neighbour"):
        assert house.client(other).post(url, {"do": "off"}).status_code == 404
    assert owner.get(url).status_code == 405
    assert Alert.objects.count() == 1
    kept = SavedQuery.objects.get(name="First")
    owner.post(reverse("saved_query", args=[kept.pk]), {"do": "delete"})
    assert not Alert.objects.exists()
