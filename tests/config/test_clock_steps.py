"""The wall clock is set back by two hours: jobs keep their intervals, and none stops or runs twice
without a log line."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import time_machine
from django.db import transaction
from django.test import Client

from config import celery
from db import jobs as db_job_heartbeats
from db.clock import now_us
from investigation.exports import exports
from investigation.models import Export
from journal import outbox
from journal.models import Outbox
from journal.tasks import deliver_outbox
from ledger import circuit_breakers
from ledger.models import Breaker
from ledger.tools import cache
from monitoring import job_heartbeats
from monitoring.models import JobHeartbeat
from monitoring.stuck import sweeper
from notifications import notifications, outbound_http
from notifications.models import Notification, NotificationChannel
from sessions import capacity
from sessions.models import Capacity
from tests.api.api_client import Caller, code
from tests.api.conftest import agent as agent
from tests.api.conftest import application as application
from tests.api.conftest import call as call
from tests.api.conftest import issue as issue
from tests.approvals.conftest import inbox as inbox
from tests.approvals.conftest import quiet as quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import _outside, add_full_channel, posted, risky
from tests.pages.people import Organization

__all__ = ["_outside", "add_full_channel", "posted"]
US = 1_000_000
HOURS = 2
pytestmark = pytest.mark.django_db


@pytest.fixture
def set_back() -> Iterator[Callable[[int], None]]:
    """Set the wall clock back by so many seconds, from then on to the end of the test."""
    with time_machine.travel(now_us() / US) as traveller:

        def step(seconds: int) -> None:
            traveller.move_to(now_us() / US - seconds)

        yield step


class Clock:
    """A wall clock and a monotonic clock, moved by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_800_000_000.0, 5_000.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(celery, "time", made)
    return made


@pytest.fixture
def scheduler(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> celery.MonotonicScheduler:
    """Return Celery's default scheduler for the application, which sends into a list."""
    service = celery.app.Beat().Service(app=celery.app)
    service.scheduler_cls = celery.app.conf.beat_scheduler
    made = service.get_scheduler()
    assert isinstance(made, celery.MonotonicScheduler)
    monkeypatch.setattr(celery.MonotonicScheduler, "producer", None)
    return made


def sent_within(scheduler: celery.MonotonicScheduler, clock: Clock, seconds: float) -> list[str]:
    """Return the jobs that are sent within so many seconds."""
    names: list[str] = []

    def send(entry: Any, producer: object = None) -> None:
        names.append(entry.name)

    scheduler.apply_entry = send  # type: ignore[method-assign]
    until = clock.steady + seconds
    while clock.steady < until:
        clock.sleep(min(scheduler.tick(), until - clock.steady) or 0.001)
    return names


@pytest.mark.parametrize("hours", [-HOURS, HOURS])
def test_the_schedule_goes_by_the_monotonic_clock_and_logs_a_step(
    scheduler: celery.MonotonicScheduler, clock: Clock, hours: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = sent_within(scheduler, clock, 61)
    assert before.count("outbox-deliver") == 12
    assert before.count("alerts-run") == 1
    clock.wall += hours * 3600
    after = sent_within(scheduler, clock, 60)
    assert after.count("outbox-deliver") == 12
    assert after.count("search-index") == 20
    assert "idempotency-keys-prune" not in after
    moved = [record.msg for record in caplog.records if "clock_moved" in str(record.msg)]
    assert len(moved) == 1
    assert sent_within(scheduler, clock, 3_600).count("idempotency-keys-prune") == 1


def test_a_machine_that_slept_sends_each_job_once(
    scheduler: celery.MonotonicScheduler, clock: Clock
) -> None:
    sent_within(scheduler, clock, 10)
    clock.sleep(3 * 3600)
    names = sent_within(scheduler, clock, 1)
    assert sorted(names) == sorted(celery.app.conf.beat_schedule)


def test_health_and_every_page_name_the_step_until_the_clock_has_caught_up(
    organization: Organization, set_back: Callable[[int], None]
) -> None:
    sweeper.sweep_stuck()
    deliver_outbox()
    set_back(HOURS * 3600)
    read = Client().get("/readyz").content.decode()
    assert read.startswith("ready, degraded: stuck_checks, outbox\n")
    assert "stuck_checks: clock set back, last ran at a time 1 h 59 min in the future" in read
    page = organization.client("viewer").get("/tools/").content.decode()
    assert re.search(
        r"Stuck checks\s+last ran at a time 1 h 59 min in the future: the clock\s+was set back",
        page,
    )
    sweeper.sweep_stuck()
    deliver_outbox()
    sweeper.sweep_stuck()
    read = Client().get("/readyz").content.decode()
    assert read.startswith("ready, degraded: clock\n")
    assert "clock: set back 1 h 59 min" in read
    assert "stuck_checks: last succeeded" in read
    assert (
        "The clock was set back by 1 h 59 min"
        in organization.client("viewer").get("/tools/").content.decode()
    )
    assert JobHeartbeat.objects.filter(name=db_job_heartbeats.CLOCK_ROW).count() == 1
    set_back(-HOURS * 3600)  # the wall clock has caught up
    assert job_heartbeats.load_clock_step() is None


def test_alarms_are_not_delayed_for_as_long_as_the_clock_was_set_back(
    set_back: Callable[[int], None],
) -> None:
    sweeper.sweep_stuck()
    JobHeartbeat.objects.filter(name="stuck_checks").update(paused_until_us=now_us() + 120 * US)
    set_back(HOURS * 3600)
    assert sweeper.sweep_stuck().is_paused
    assert job_heartbeats.load_pause_end() <= now_us() + 120 * US


def test_the_outbox_delivers_what_was_put_before_the_step(
    inbox: InboxScenario, set_back: Callable[[int], None]
) -> None:
    risky(inbox, "high")
    assert Outbox.objects.filter(sent_at_us=None).exists()
    set_back(HOURS * 3600)
    assert outbox.deliver_due() > 0
    assert not Outbox.objects.filter(sent_at_us=None).exists()
    assert outbox.deliver_due() == 0


@pytest.mark.parametrize("back_s", [600, HOURS * 3600])
def test_a_failed_delivery_waits_no_longer_than_it_can(
    inbox: InboxScenario, set_back: Callable[[int], None], back_s: int
) -> None:
    risky(inbox, "high")

    def fails(_row: Outbox) -> None:
        raise OSError("away")

    topics = set(Outbox.objects.values_list("topic", flat=True))
    assert outbox.deliver_due(dict.fromkeys(topics, fails)) == 0
    assert outbox.deliver_due() == 0, "half a minute has not passed"
    set_back(back_s)
    assert outbox.deliver_due() > 0


def test_notifications_are_sent_once_after_the_step_and_digests_wait_for_their_hour(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    posted: list[Any],
    set_back: Callable[[int], None],
) -> None:
    add_full_channel("webhook")
    risky(inbox, "high")
    outbox.deliver_due()
    digest = Notification.objects.get()
    day_us = notifications.DIGEST_PERIODS_US["low"]
    digest.pk, digest.key, digest.due_at_us = None, "digest", (now_us() // day_us + 1) * day_us
    digest.save()
    set_back(HOURS * 3600)
    assert notifications.send_due_notifications() == 1
    assert notifications.send_due_notifications() == 0
    assert list(Notification.objects.filter(state="due").values_list("key", flat=True)) == [
        "digest"
    ]


def test_a_notification_that_another_worker_claimed_is_not_sent_twice(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_full_channel("webhook")
    risky(inbox, "high")
    outbox.deliver_due()
    inside: list[int] = []
    monkeypatch.setattr(
        outbound_http,
        "post_webhook",
        lambda *_: inside.append(notifications.send_due_notifications()),
    )
    assert notifications.send_due_notifications() == 1
    assert inside == [0]


def test_an_export_of_a_killed_worker_is_resumed_after_the_step(
    organization: Organization, set_back: Callable[[int], None]
) -> None:
    export = exports.request_export(organization.members["operator"], "effect", "csv")
    Export.objects.filter(pk=export.pk).update(state="running", tries=1, heartbeat_at_us=now_us())
    assert exports.run_exports() == 0, "its maker may be alive"
    set_back(HOURS * 3600)
    assert exports.run_exports() == 1


def test_a_breaker_and_a_report_of_capacity_last_no_longer_than_they_can(
    agent: Caller, set_back: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.session()
    assert (
        agent.post("/capacity", {"session": "s-1", "context_left_tokens": 100}).status_code == 200
    )
    plan = {"session": "s-1", "effect_key": "e-1", "tool": "git.push", "arguments": {}}
    assert code(agent.post("/effects", plan)) == (429, "PACED")
    set_back(HOURS * 3600)
    row = Capacity.objects.get()
    assert not capacity.is_capacity_fresh(row, now_us())
    assert agent.post("/effects", plan).status_code == 201
    limits = cache.load_tool(row.project_id, "git.push")._replace(
        breaker_failures=1, breaker_pause_s=60
    )
    monkeypatch.setattr(cache, "load_tool", lambda *_: limits)
    until_us = now_us() + HOURS * 3600 * US
    with transaction.atomic():
        Breaker.objects.create(
            project=row.project,
            tool="git.push",
            failures=1,
            opened_at_us=now_us(),
            until_us=until_us,
        )
    assert circuit_breakers.load_breaker_states(row.project_id, now_us())["git.push"].state == "due"
    assert agent.post("/effects", plan | {"effect_key": "e-2"}).status_code == 201


def test_a_job_that_always_fails_is_not_shown_as_done(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver_outbox()

    def broken(*_arguments: object, **_more: object) -> int:
        raise LookupError("secret words")

    monkeypatch.setattr(outbox, "deliver_due", broken)
    with pytest.raises(LookupError):
        deliver_outbox()
    read = Client().get("/readyz")
    assert read.status_code == 200
    first, line = read.content.decode().splitlines()
    assert first == "ready, degraded: outbox"
    assert line.startswith("outbox: failing, last succeeded ")
    assert "; last error LookupError, " in line
    assert "secret words" not in line
    page = organization.client("viewer").get("/tools/").content.decode()
    assert re.search(r"Event delivery\s+failing, last succeeded", page)
    assert "last error LookupError" in page
    # A job that runs every five seconds without success is late after a minute too.
    JobHeartbeat.objects.update(succeeded_us=now_us() - 300 * US)
    assert "outbox: late, failing, last succeeded 5 min" in Client().get("/readyz").content.decode()
    monkeypatch.undo()
    deliver_outbox()
    assert Client().get("/readyz").content.startswith(b"ready\noutbox: last succeeded ")


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("journal.tasks.deliver_outbox", "outbox"),
        ("notifications.tasks.send_notifications", "notifications"),
        ("approvals.tasks.expire_gates", "gates"),
        ("monitoring.tasks.sweep_stuck", "stuck_checks"),
        ("investigation.tasks.update_search_index", "search_index"),
        ("ledger.tasks.update_name_index", "name_index"),
        ("monitoring.tasks.count_effect_hours", "counts"),
        ("proofs.tasks.seal_journal", "seal"),
        ("investigation.tasks.run_alerts", "alerts"),
        ("investigation.tasks.run_exports", "exports"),
        ("api.tasks.prune_idempotency_keys", "pruning"),
    ],
)
def test_every_periodic_job_records_how_it_ended(task: str, name: str) -> None:
    assert {entry["task"] for entry in celery.app.conf.beat_schedule.values()} >= {task}
    celery.app.loader.import_default_modules()
    celery.app.tasks[task]()
    heartbeat = JobHeartbeat.objects.get(name=name)
    assert heartbeat.succeeded_us >= heartbeat.heartbeat_us > 0
    assert (heartbeat.failed_us, heartbeat.error) == (0, "")
