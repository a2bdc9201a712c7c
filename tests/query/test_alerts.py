"""Alerts of saved queries: turned on by the page, checked by the job, sent by email."""

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

from accounts import people
from approvals import exemptions
from db.clock import now_us
from display import time_limit
from investigation.alerts import alert_runner, alerts
from investigation.models import Alert, SavedQuery
from investigation.query import execute
from journal import outbox
from journal.models import Entry, Outbox
from ledger.models import Effect
from notifications import channels
from notifications.models import Notification, NotificationChannel
from pages.overview.day_counts import DAY_US, format_minute
from pages.overview.faults import MINUTE_US
from tests.api.api_client import Caller
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import Killed, tick
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent
from tests.query.test_overview_numbers import list_numbers, read_board
from tests.query.test_repeats import complete_effect

pytestmark = pytest.mark.django_db
SILENT: dict[str, Any] = dict.fromkeys(channels.TOPIC_FLAGS, False)
Watch = Callable[..., SavedQuery]


@pytest.fixture(autouse=True)
def _local_mail(settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture
def team(organization: Organization) -> NotificationChannel:
    """Create a channel of the project, and addresses of operator, reviewer and neighbour."""
    boss = organization.members["administrator"].user
    for name in ("operator", "reviewer"):
        own = organization.members[name].user
        channels.add_channel(
            organization.project, "email", f"{name}@example.org", boss, person=own, **SILENT
        )
    neighbour = organization.neighbour.user
    channels.add_channel(
        organization.other, "email", "neighbour@example.org", neighbour, person=neighbour, **SILENT
    )
    return channels.add_channel(organization.project, "email", "team@example.org", boss, **SILENT)


@pytest.fixture
def watch(organization: Organization, team: NotificationChannel) -> Watch:
    """Save a query of the operator and turn its alerts on, through the pages."""

    def save(
        text: str,
        name: str = "Watched",
        *,
        to: tuple[NotificationChannel, ...] = (),
        shared: bool = False,
    ) -> Any:
        owner = organization.client("operator")
        owner.post(
            reverse("saved_queries"), {"name": name, "q": text, "shared": "1" if shared else ""}
        )
        made = SavedQuery.objects.get(name=name)
        url = reverse("saved_query_alerts", args=[made.pk])
        page = owner.post(
            url, {"do": "on", "channel": [str(channel.pk) for channel in to]}, follow=True
        ).content.decode()
        assert "one notification per new match" in page, page
        return made

    return save


@pytest.fixture
def stranger(organization: Organization) -> Iterator[Caller]:
    """Return the neighbour's agent as an API client."""
    with connect_agent(organization.other_token.agent) as caller:
        yield caller


def next_alerts() -> list[tuple[str, str]]:
    """Run the alerts and return the receivers and subjects of their emails."""
    call_command("run_alerts", verbosity=0)
    tick()
    letters = [(letter.to[0], str(letter.subject)) for letter in mail.outbox]
    mail.outbox.clear()
    return sorted(letters)


def plan(agent: Caller, key: str, **fields: Any) -> dict[str, Any]:
    """Plan an effect that differs from every other effect."""
    return agent.plan(key, arguments={"of": key}, **fields)


def handle(effect: dict[str, Any]) -> str:
    return f"e_{Effect.objects.get(id=effect['id']).opened_position}"


def test_a_new_match_notifies_its_owner_once_and_old_matches_never(
    organization: Organization,
    agent: Caller,
    stranger: Caller,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent.session("s-1")
    stranger.session("s-1")
    old = plan(agent, "old")
    saved = watch("effect tool:git.push")
    assert next_alerts() == []
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
    assert next_alerts() == []

    entry = Entry.objects.get(kind="alert.raised")
    assert (entry.project, entry.subject, entry.actor) == (
        organization.project.id,
        saved.pk,
        "gatebook",
    )
    assert Outbox.objects.get(topic="alert").deduplication_key == Notification.objects.get().key
    address = str(letter.body).split()[-1]
    assert re.search(r"asof%3A%23\d+%402", address)
    search_page = (
        organization.client("operator").get(address[address.index("/search/") :]).content.decode()
    )
    assert handle(new) in search_page
    assert "planned" in search_page.partition("<tbody")[2]  # the state at that moment
    page = unescape(
        organization.client("operator")
        .get(reverse("saved_query", args=[saved.pk]))
        .content.decode()
    )
    assert f"1 new effect, {handle(new)}" in " ".join(page.split())
    assert "asof%3A%23" in page

    # The overview counts it; only who may open the query reads its name.
    now = now_us()  # the overview changes with each minute
    monkeypatch.setattr("pages.overview.views.now_us", lambda: now)
    query = f"event kind:alert.raised since:{format_minute(now // MINUTE_US * MINUTE_US - DAY_US)}"
    for role, name in (("operator", "Watched"), ("viewer", "of another member's query")):
        board = read_board(organization.client(role))
        assert dict(list_numbers(board))[query] == 1
        assert name in board
    compiled = execute.compile_query(query, organization.project, now_us())
    assert execute.count_matches(compiled) == (1, False)

    off = {"do": "off"}
    url = reverse("saved_query_alerts", args=[saved.pk])
    assert organization.client("operator").post(url, off).status_code == 302
    plan(agent, "later")
    assert next_alerts() == []
    assert not Alert.objects.exists()
    kinds = (
        Entry.objects.filter(kind__startswith="alert.")
        .order_by("position")
        .values_list("kind", flat=True)
    )
    assert list(kinds) == ["alert.turned_on", "alert.raised", "alert.turned_off"]


def test_a_match_by_time_alone_notifies_and_notifies_again_on_return(
    agent: Caller, watch: Watch
) -> None:
    agent.session("s-1")
    silent = plan(agent, "silent")
    watch("effect is:unknown", "Unknown")
    watch("session seq(effect.dispatched -> !effect.acknowledged within 10m)", "No answer")
    watch("effect state:dispatched since:30d", "Sent")
    agent.dispatch(silent)
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Sent”")]
    with time_machine.travel(timedelta(days=2) + _now(), tick=False):
        subjects = {subject for _to, subject in next_alerts()}
        assert subjects == {"Gatebook: 2 saved queries have new matches"}
        assert next_alerts() == []
        agent.acknowledge(silent)
        assert next_alerts() == []
        unknown = Alert.objects.get(query__name="Unknown")
        assert list(alerts.known_positions(unknown)) == []
    # A forgotten match would notify again.
    assert alerts.merge_known([1, 2, 3], of=[1, 2], matching=[2, 5]) == [3, 2, 5]


def test_gates_exemptions_sessions_and_words_are_watched_as_well(
    inbox: InboxScenario, watch: Watch
) -> None:
    gates = watch("gate is:waiting", "Gates")
    for name, text in (
        ("Leave", "exemption is:live"),
        ("Sessions", "session any(effect: tool:git.push)"),
    ):
        watch(text, name)
    words = watch("effect zebra", "Words")
    gate = inbox.gate(inbox.plan(arguments={"note": "a zebra"}))
    until, boss = now_us() + 10**10, inbox.user("operator")
    with transaction.atomic():
        granted = exemptions.create_exemption(
            inbox.project, tool="x", reason="for the drill", ends_at_us=until, user=boss, **proved()
        )
    call_command("run_alerts", verbosity=0)
    tick()
    (letter,) = mail.outbox
    assert letter.subject == "Gatebook: 3 saved queries have new matches"
    for phrase in (
        "1 new gate: “Gates”",
        f"g_{gate.opened_position}",
        "1 new exemption: “Leave”",
        "1 new session:",
    ):
        assert phrase in str(letter.body)
    assert f"x_{granted.opened_position}." in str(letter.body)
    mail.outbox.clear()
    call_command("update_search_index", verbosity=0)  # entries not indexed yet are not skipped
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Words”")]
    inbox.answer(gate, "reviewer", "deny", "not today")
    assert alert_runner.run_alerts().notified == 0
    positions = {
        alert.query_id: list(alerts.known_positions(alert)) for alert in Alert.objects.all()
    }
    assert (positions[gates.pk], len(positions[words.pk])) == ([], 1)


def test_a_repeated_call_notifies_once_it_is_compared(
    organization: Organization, agent: Caller, watch: Watch
) -> None:
    for text in ("effect duplicate:call", "session repeats:>=2"):
        watch(text, text)
    agent.session("s-1")
    for key in ("one", "two"):
        complete_effect(agent, key, "s-1")
    assert next_alerts() == []
    call_command("update_search_index", verbosity=0)
    assert next_alerts() == [("operator@example.org", "Gatebook: 2 saved queries have new matches")]


def _now() -> Any:
    return datetime.fromtimestamp(now_us() / 1_000_000, UTC)


def test_a_shared_query_notifies_the_chosen_channels_until_it_is_private(
    organization: Organization, agent: Caller, watch: Watch, team: NotificationChannel
) -> None:
    agent.session("s-1")
    saved = watch("event kind:effect.planned", shared=True, to=(team,))
    plan(agent, "e-1")
    both = ["operator@example.org", "team@example.org"]
    assert [to for to, _subject in next_alerts()] == both
    changed = {"name": "Watched", "q": saved.text, "version": "1"}
    assert (
        organization.client("operator")
        .post(reverse("saved_query", args=[saved.pk]), changed)
        .status_code
        == 302
    )
    plan(agent, "e-2")
    assert [to for to, _subject in next_alerts()] == both[:1]
    changed |= {"q": "effect tool:git.push", "version": "2"}
    organization.client("operator").post(reverse("saved_query", args=[saved.pk]), changed)
    plan(agent, "e-3")
    assert next_alerts() == []  # a changed query starts again
    plan(agent, "e-4")
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]
    people.remove_project_member(organization.members["operator"], actor="tests")
    plan(agent, "e-5")
    assert next_alerts() == []
    assert "no longer a member" in Alert.objects.get().stopped_because


def test_a_kill_in_between_loses_no_alert_and_repeats_none(
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
    report = alert_runner.run_alerts()
    assert (report.checks, report.notified) == (1, 1)  # and killed before the email was sent
    stale = Alert(**before)
    assert not alerts.store_check(
        stale, alerts.CheckResult(before["place"] + 9, now_us(), "effect", [], [1])
    )  # another job was faster
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]
    assert next_alerts() == []


def _never_end() -> None:
    """Run a statement that the database must stop, without losing the test's transaction."""
    point = transaction.savepoint()
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT 1 FROM c) SELECT count(*) FROM c"
            )
    finally:  # bypasses Django's cursor, which sends nothing after the time limit
        connection.connection.execute(f'ROLLBACK TO SAVEPOINT "{point}"')


def test_a_long_query_is_stopped_reported_once_and_blocks_no_other_alert(
    organization: Organization,
    agent: Caller,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:
    agent.session("s-1")
    slow, quick = watch("effect tool:slow*", "Slow"), watch("effect tool:git.push", "Quick")
    monkeypatch.setattr(time_limit, "SQLITE_STEPS", 1_000)
    compile_query, check_alert = execute.compile_query, alert_runner._check_alert

    def endless(text: str, *arguments: Any) -> Any:
        if "slow" in text:
            _never_end()
        return compile_query(text, *arguments)

    def limited(alert: Alert, *arguments: Any) -> bool:
        # Only for the slow query: on a busy machine the quick query may take as long.
        settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.5 if alert.query_id == slow.pk else 60.0
        return check_alert(alert, *arguments)

    monkeypatch.setattr(execute, "compile_query", endless)
    monkeypatch.setattr(alert_runner, "_check_alert", limited)
    for number in range(alerts.MAX_FAILURES):
        plan(agent, f"e-{number}")
        letters = next_alerts()
        assert ("operator@example.org", "Gatebook: 1 new effect: “Quick”") in letters
    assert letters == [
        ("operator@example.org", "Gatebook: 1 new effect: “Quick”"),
        ("operator@example.org", "Gatebook: The alerts of “Slow” were stopped"),
    ]
    plan(agent, "last")
    assert [subject for _to, subject in next_alerts()] == ["Gatebook: 1 new effect: “Quick”"]
    owner = organization.client("operator")
    page = owner.get(reverse("saved_query", args=[slow.pk])).content.decode()
    assert "The query takes longer than 0.5 s." in page
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.5
    refused = owner.post(reverse("saved_query_alerts", args=[slow.pk]), {"do": "on"}, follow=True)
    assert "The query takes longer" in refused.content.decode()
    assert Alert.objects.get(query=quick).failures == 0


def test_alerts_are_refused_with_a_sentence(
    organization: Organization, team: NotificationChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "MAX_ALERTS", 1)
    owner = organization.client("operator")

    def on(name: str, text: str, who: Any = owner) -> str:
        who.post(reverse("saved_queries"), {"name": name, "q": text})
        url = reverse("saved_query_alerts", args=[SavedQuery.objects.get(name=name).pk])
        return unescape(
            who.post(url, {"do": "on", "channel": [str(team.pk)]}, follow=True).content.decode()
        )

    assert "Alerts cannot watch groups" in on("Groups", "effect | group tool")
    assert "Alerts cannot watch a past moment" in on("Past", "effect asof:1d")
    assert "No recipient:" in on(
        "Alone", "effect", organization.client("viewer")
    )  # no address, and not shared
    assert not Alert.objects.exists()
    assert "Alerts are on." in on("First", "effect")
    assert "already on" in on("First", "effect")
    assert "already has 1 queries with alerts" in on("Second", "effect")
    url = reverse("saved_query_alerts", args=[SavedQuery.objects.get(name="First").pk])
    for other in ("reviewer", "administrator", "neighbour"):
        assert organization.client(other).post(url, {"do": "off"}).status_code == 404
    assert owner.get(url).status_code == 405
    assert Alert.objects.count() == 1
    kept = SavedQuery.objects.get(name="First")
    owner.post(reverse("saved_query", args=[kept.pk]), {"do": "delete"})
    assert not Alert.objects.exists()
