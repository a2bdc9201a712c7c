"""The process that sends notifications is really killed, at each of its steps, and another goes on.

At any step, each receiver gets the notification at least once, always under the same key, and no
row is left over.
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
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import risky, tick
from tests.config.server import COMMAND_WITHIN_S, Copy, Server, Shell

PATHS = ("/one", "/two")
RULES = "name: killed\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
# The real jobs, in a process that stops for good at a given step, prints it, and waits to be
# killed.
TASKS = """
import sys, time, signal
import django
django.setup()
import time_machine
from notifications import notifications, outbound_http
from notifications.tasks import send_notifications
from journal import outbox
from journal.tasks import deliver_outbox
point, project, later_s, *stuck = sys.argv[1:]
outbound_http.TIMEOUT_S = 600  # a process that waits for an answer waits until it is killed

def pause():
    print(point, flush=True)
    signal.pause()

def pause_at(name, owner, function, after):
    whole, calls = getattr(owner, function), []
    def half(first, *arguments, **values):
        row = first.channel if hasattr(first, "channel") else first
        if str(getattr(row, "project_id", None) or row.project) != project:
            return whole(first, *arguments, **values)
        calls.append(1)
        done = whole(first, *arguments, **values) if after else None
        pause()
        return done
    if point == name:
        setattr(owner, function, half)

pause_at("the first of two notifications is not written", notifications, "_write_notification", False)
pause_at("only the first of two notifications is written", notifications, "_write_notification", True)
pause_at("the notifications are written, the outbox does not know", outbox, "_update", False)
pause_at("the outbox knows", outbox, "_update", True)
pause_at("nothing is claimed", notifications, "_claim_notification", False)
pause_at("it is claimed", notifications, "_claim_notification", True)
pause_at("it is answered, not recorded", notifications, "_mark", False)
pause_at("it is recorded", notifications, "_mark", True)
for session in stuck:  # as a second sweep in a row raises it, if it is not raised yet
    from uuid import UUID
    from monitoring.models import StuckEpisode
    from monitoring.stuck import episodes
    from monitoring.stuck.rules import RuleResult
    if point == "it is raised, without a notification":
        outbox.queue_delivery = lambda *_row, **_values: pause()
    since = 1_000_000
    active_rule = episodes.ActiveRule(UUID(project), UUID(session), RuleResult("S2", UUID(session), "session", 1, since, []))
    if not StuckEpisode.objects.filter(session=session, raised_us__isnull=False).exists():
        episodes.store_episodes([active_rule], 1, since)
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
    """A program that receives: a path, a key and a body for each POST, kept before it is answered,
    if at all."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str, dict[str, Any]]] = []
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
                receiver.received.append((self.path, self.headers["Gatebook-Notification"], body))
                receiver.came.release()
                if receiver.answers.wait(COMMAND_WITHIN_S):
                    self.send_response(204)
                    self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        return Handler


@dataclass
class Place:
    """A project of its own on the live server's database, with two receiving programs."""

    server: Server
    agent: Caller
    project: str
    receiver: Receiver
    shell: Shell

    def begin(self, point: str, later_s: int = 0, *stuck: str) -> Copy:
        """Start the jobs in a process of their own, so much later."""
        return Copy(self.shell, TASKS, point, self.project, str(later_s), *stuck)

    def go_on(self, later_s: int) -> None:
        """Run the jobs, so much later, in a process that stays."""
        self.shell.do(
            {
                "run": "import sys\nsys.argv = "
                f"{['-c', 'nowhere', self.project, str(later_s)]}\n{TASKS}"
            }
        )

    def rows(self, gate: str) -> tuple[list[list[str]], int]:
        """The stored notifications of a gate, and the number of its rows in the outbox."""
        notifications, waiting = json.loads(self.server.run(ROWS.format(gate=gate)))
        return notifications, waiting


@pytest.fixture(scope="module")
def place(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    receiver, name = Receiver(), f"killed-{new_key()[:8]}"
    host = f"127.0.0.1:{receiver.server.server_port}"
    allowed = {"GATEBOOK_WEBHOOK_HOSTS": host, "GATEBOOK_WEBHOOK_LOOPBACK": "1"}
    environment = {**live_server_process.environment, **allowed}
    setup = SETUP.format(name=name, urls=[f"http://{host}{path}" for path in PATHS])
    shell = Shell(environment)
    project = shell.do({"run": setup}).strip()
    rules: Path = tmp_path_factory.mktemp("killed") / "policies.yaml"
    rules.write_text(RULES)
    live_server_process.manage(
        "load_policies", "--project", name, str(rules), "--activate", "enforce"
    )
    agent = Caller(
        live_server_process.token("tester", "--project", name), address=live_server_process.url
    )
    agent.session("s-1")
    yield Place(live_server_process, agent, project, receiver, shell)
    shell.close()
    receiver.server.shutdown()
    receiver.server.server_close()


# The step at which the process is killed, and how often the first receiver has been called by then.
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


# Each point on SQLite; on PostgreSQL the points at which a step is half done in the database.
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("point", "before"), POINTS if connection.vendor == "sqlite" else POINTS[1:7:2]
)
def test_killed_at_any_step_the_next_process_goes_on_under_the_same_key(
    place: Place, point: str, before: int
) -> None:
    receiver = place.receiver
    receiver.received.clear()
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
    assert [path for path, _, _ in receiver.received] == ["/one"] * before
    place.go_on(later_s=61)  # a claim is good for a minute
    twice = 1 if point == "it is recorded" else before + 1
    assert [path for path, _, _ in sorted(receiver.received)] == ["/one"] * twice + ["/two"]
    assert {(header_key, body["id"]) for _, header_key, body in receiver.received} == {(key, key)}
    assert {body["gate"] for _, _, body in receiver.received} == {gate}
    rows, waiting = place.rows(gate)
    assert [(url.rpartition("/")[2], header_key, state) for url, header_key, state in rows] == [
        ("one", key, "sent"),
        ("two", key, "sent"),
    ]
    assert waiting == 0


@pytest.mark.django_db
@pytest.mark.once  # the same rows and steps as those of a gate
def test_a_stuck_session_is_notified_once_though_sweep_and_sender_are_killed(
    place: Place,
) -> None:
    receiver = place.receiver
    receiver.received.clear()
    receiver.answers.set()
    session = place.agent.session(new_key())["id"]
    for point in (
        "it is raised, without a notification",
        "only the first of two notifications is written",
    ):
        killed = place.begin(point, 0, session)
        try:
            assert killed.stdout.readline().strip() == point
        finally:
            killed.kill()
        assert killed.ended()[0] == -signal.SIGKILL
        assert receiver.received == []
    assert place.begin("nowhere", 61, session).ended()[0] == 0
    key = f"stuck:{session.replace('-', '')}:S2:1"
    assert sorted((path, header_key) for path, header_key, _ in receiver.received) == [
        ("/one", key),
        ("/two", key),
    ]
    assert {body["session"] for _, _, body in receiver.received} == {session}


@pytest.mark.matrix_on_postgresql
@pytest.mark.parametrize("newcomers", [0, 1])
def test_a_repeated_digest_keeps_its_key_unless_it_has_more_items(
    inbox: InboxScenario, settings: Settings, monkeypatch: pytest.MonkeyPatch, newcomers: int
) -> None:
    """Mail servers drop a second letter of one Message-ID: only letters with the same content may
    share an id."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    channels.add_channel(
        inbox.project, "email", "team@example.org", inbox.user("administrator"), requests=True
    )
    for number in range(2):
        risky(inbox, "medium", f"e-{number}")
    tick()

    def killed(*_arguments: object, **_values: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(notifications, "_mark", killed)
        with pytest.raises(KeyboardInterrupt):
            tick(15 * 60)
    for number in range(newcomers):
        risky(inbox, "medium", f"later-{number}")
    outbox.deliver_due()
    assert tick(15 * 60 + 61) == 2 + newcomers
    sent = [letter.extra_headers for letter in mail.outbox]
    for name in ("Message-ID", "Gatebook-Notification"):
        assert (sent[0][name] == sent[1][name]) is (newcomers == 0)
    assert len(sent) == 2
