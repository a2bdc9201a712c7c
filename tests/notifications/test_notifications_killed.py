"""The process that tells people and programs is really killed, at each of its steps, and another
one goes on.

Whatever the step, each receiver hears of it at least once, always under the same key, and no row is
left behind.
"""

import json
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from pytest_django import Settings

from journal import outbox
from notifications import channels, notifications
from tests.api.api_client import Caller, new_key
from tests.approvals.inbox_scenario import Desk
from tests.approvals.notification_helpers import risky, tick
from tests.config.server import COMMAND_WITHIN_S, Copy, Server, Shell

PATHS = ("/one", "/two")
RULES = "name: killed\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
# The true tasks, in a process that stops for good where it is told to, says so, and waits to be
# killed.
TASKS = """
import sys, time, signal
import django
django.setup()
import time_machine
from notifications import notifications
from notifications.tasks import send_notifications
from journal import outbox
from journal.tasks import deliver_outbox
point, project, later_s, *stuck = sys.argv[1:]

def stand():
    print(point, flush=True)
    signal.pause()

def standing(name, owner, function, after):
    whole, calls = getattr(owner, function), []
    def half(first, *arguments, **values):
        row = first.channel if hasattr(first, "channel") else first
        if str(getattr(row, "project_id", None) or row.project) != project:
            return whole(first, *arguments, **values)
        calls.append(1)
        done = whole(first, *arguments, **values) if after else None
        stand()
        return done
    if point == name:
        setattr(owner, function, half)

standing("the first of two notifications is not written", notifications, "_write_notification", False)
standing("only the first of two notifications is written", notifications, "_write_notification", True)
standing("the notifications are written, the outbox does not know", outbox, "_update", False)
standing("the outbox knows", outbox, "_update", True)
standing("nothing is claimed", notifications, "_claim_notification", False)
standing("it is claimed", notifications, "_claim_notification", True)
standing("it is answered, not recorded", notifications, "_mark", False)
standing("it is recorded", notifications, "_mark", True)
for session in stuck:  # as a second sweep in a row raises it, if it is not raised yet
    from uuid import UUID
    from monitoring.models import StuckEpisode
    from monitoring.stuck import episodes
    from monitoring.stuck.rules import RuleResult
    if point == "it is raised, and nobody is to hear of it":
        outbox.queue_delivery = lambda *_row, **_values: stand()
    since = 1_000_000
    held = episodes.ActiveRule(UUID(project), UUID(session), RuleResult("S2", UUID(session), "session", 1, since, []))
    if not StuckEpisode.objects.filter(session=session, raised_us__isnull=False).exists():
        episodes.store_episodes([held], 1, since)
    episodes.raise_episodes(StuckEpisode.objects.filter(session=session), since + 1)
with time_machine.travel(time.time() + float(later_s), tick=True):
    deliver_outbox()
    print(send_notifications(), "sent", flush=True)
"""
SETUP = """
from django.db import transaction
from notifications import channels
from notifications.models import Notification
from accounts import people
from accounts import projects
with transaction.atomic():
    project = projects.create_project("{name}")
    user = people.add_project_member(project, "{name}", "administrator", people.generate_password()).user
    for url in {urls}:
        channels.add_channel(project, "webhook", url, user, requests=True, stuck=True)
print(project.id)
"""
ROWS = """
import json
from notifications.models import Notification
from journal.models import Outbox
rows = Notification.objects.filter(gate="{gate}").order_by("id").values_list("channel__target", "key", "state")
waiting = Outbox.objects.filter(deduplication_key__contains="{gate}".replace("-", ""), sent_at_us=None).count()
print(json.dumps([list(rows), waiting]))
"""


class Receiver:
    """A program that hears: a path, a key and a body for each POST, kept before it is answered, if
    it is."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, dict[str, Any]]] = []
        self.answers = threading.Event()
        self.came = threading.Semaphore(0)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.heard.append((self.path, self.headers["Gatebook-Notification"], body))
                receiver.came.release()
                if receiver.answers.wait(COMMAND_WITHIN_S):
                    self.send_response(204)
                    self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        return Handler


@dataclass
class Place:
    """A project of its own on the live server's database, of which two programs hear."""

    server: Server
    agent: Caller
    project: str
    receiver: Receiver
    beside: Shell

    def begin(self, point: str, later_s: int = 0, *stuck: str) -> Copy:
        """The tasks in a process of their own, so much later."""
        return Copy(self.beside, TASKS, point, self.project, str(later_s), *stuck)

    def go_on(self, later_s: int) -> None:
        """The tasks, so much later, in a process that stays."""
        self.beside.do(
            {
                "run": "import sys\nsys.argv = "
                f"{['-c', 'nowhere', self.project, str(later_s)]}\n{TASKS}"
            }
        )

    def rows(self, gate: str) -> tuple[list[list[str]], int]:
        """What is stored of a gate's notifications, and how much of it the outbox still holds."""
        found, waiting = json.loads(self.server.run(ROWS.format(gate=gate)))
        return found, waiting


@pytest.fixture(scope="module")
def place(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    receiver, name = Receiver(), f"killed-{new_key()[:8]}"
    host = f"127.0.0.1:{receiver.server.server_port}"
    allowed = {"GATEBOOK_WEBHOOK_HOSTS": host, "GATEBOOK_WEBHOOK_LOOPBACK": "1"}
    environment = {**live_server_process.environment, **allowed}
    setup = SETUP.format(name=name, urls=[f"http://{host}{path}" for path in PATHS])
    beside = Shell(environment)
    project = beside.do({"run": setup}).strip()
    rules: Path = tmp_path_factory.mktemp("killed") / "policies.yaml"
    rules.write_text(RULES)
    live_server_process.manage(
        "load_policies", "--project", name, str(rules), "--activate", "enforce"
    )
    agent = Caller(
        live_server_process.token("tester", "--project", name), address=live_server_process.url
    )
    agent.session("s-1")
    yield Place(live_server_process, agent, project, receiver, beside)
    beside.close()
    receiver.server.shutdown()
    receiver.server.server_close()


# Where it is killed, and how often the first receiver has heard of it by then.
POINTS = [
    ("the first of two notifications is not written", 0),
    ("only the first of two notifications is written", 0),
    ("the notifications are written, the outbox does not know", 0),
    ("the outbox knows", 0),
    ("nothing is claimed", 0),
    ("it is claimed", 0),
    ("the receiver has it and has not answered", 1),
    ("it is answered, not recorded", 1),
    ("it is recorded", 1),
]


# Each of them on SQLite; on PostgreSQL those at which something is half done in the database.
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("point", "before"), POINTS if connection.vendor == "sqlite" else POINTS[1:7:2]
)
def test_killed_at_any_step_the_next_process_goes_on_under_the_same_key(
    place: Place, point: str, before: int
) -> None:
    receiver = place.receiver
    receiver.heard.clear()
    receiver.came = threading.Semaphore(0)
    receiver.answers.set()
    gate = place.agent.plan(new_key(), arguments={"n": new_key()})["gate"]["id"]
    key = f"gate.requested:{gate.replace('-', '')}"
    if "has not answered" in point:
        receiver.answers.clear()
    first = place.begin(point)
    try:
        if "has not answered" in point:
            assert receiver.came.acquire(timeout=COMMAND_WITHIN_S)
        else:
            assert first.stdout.readline().strip() == point
    finally:
        first.kill()
        ended, _ = first.ended()
        receiver.answers.set()
    assert ended == -signal.SIGKILL
    assert [path for path, _, _ in receiver.heard] == ["/one"] * before
    place.go_on(later_s=61)  # a claim is good for a minute
    twice = 1 if point == "it is recorded" else before + 1
    assert [path for path, _, _ in sorted(receiver.heard)] == ["/one"] * twice + ["/two"]
    assert {(told, body["id"]) for _, told, body in receiver.heard} == {(key, key)}
    assert {body["gate"] for _, _, body in receiver.heard} == {gate}
    rows, waiting = place.rows(gate)
    assert [(url.rpartition("/")[2], told, state) for url, told, state in rows] == [
        ("one", key, "sent"),
        ("two", key, "sent"),
    ]
    assert waiting == 0


@pytest.mark.django_db
@pytest.mark.once  # the same rows and steps as those of a gate
def test_what_is_stuck_is_told_once_though_the_sweep_and_then_the_telling_are_killed(
    place: Place,
) -> None:
    receiver = place.receiver
    receiver.heard.clear()
    receiver.answers.set()
    session = place.agent.session(new_key())["id"]
    for point in (
        "it is raised, and nobody is to hear of it",
        "only the first of two notifications is written",
    ):
        killed = place.begin(point, 0, session)
        try:
            assert killed.stdout.readline().strip() == point
        finally:
            killed.kill()
        assert killed.ended()[0] == -signal.SIGKILL
        assert receiver.heard == []
    assert place.begin("nowhere", 61, session).ended()[0] == 0
    key = f"stuck:{session.replace('-', '')}:S2:1"
    assert sorted((path, told) for path, told, _ in receiver.heard) == [
        ("/one", key),
        ("/two", key),
    ]
    assert {body["session"] for _, _, body in receiver.heard} == {session}


@pytest.mark.parametrize("newcomers", [0, 1])
def test_a_digest_is_known_again_by_its_key_unless_it_tells_of_more(
    desk: Desk, settings: Settings, monkeypatch: pytest.MonkeyPatch, newcomers: int
) -> None:
    """Mail servers drop a second letter of one Message-ID: it must not be the only one that tells
    of something."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    channels.add_channel(
        desk.project, "email", "team@example.org", desk.user("administrator"), requests=True
    )
    for number in range(2):
        risky(desk, "medium", f"e-{number}")
    tick()

    def killed(*_arguments: object, **_values: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(notifications, "_mark", killed)
        with pytest.raises(KeyboardInterrupt):
            tick(15 * 60)
    for number in range(newcomers):
        risky(desk, "medium", f"later-{number}")
    outbox.deliver_due()
    assert tick(15 * 60 + 61) == 2 + newcomers
    sent = [letter.extra_headers for letter in mail.outbox]
    for name in ("Message-ID", "Gatebook-Notification"):
        assert (sent[0][name] == sent[1][name]) is (newcomers == 0)
    assert len(sent) == 2
