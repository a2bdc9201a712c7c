"""Celery application. Its jobs take no arguments and do whatever is due.

Each job is also a management command. Losing a message (the file broker may, on a SIGKILL) loses
nothing: the next tick does the same work.
"""

import os
import time
import uuid
import warnings
from pathlib import Path
from queue import Empty
from typing import Any

import structlog
from celery import Celery
from celery.beat import Scheduler
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging
from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.conf import settings

FILE_BROKER = "filesystem://"
BROKER_POLL_S = 0.5
READ_ATTEMPTS, READ_RETRY_S = 20, 0.05  # reads of a file that another process is writing
CLOCK_STEP_S = 5.0  # the wall clock was set if it moves by more against the monotonic clock

log = structlog.get_logger("gatebook.jobs")


def build_broker_options(url: str, folder: Path) -> dict[str, Any]:
    """Return the transport options for `url`; create the file broker's folders."""
    if not url.startswith(FILE_BROKER):
        return {}
    messages, control = folder / "messages", folder / "control"
    for path in (messages, control):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(control),
        "polling_interval": 0.2,
    }


class FileChannel(filesystem.Channel):
    """Channel of the file broker that writes each message atomically.

    kombu opens the file first and writes afterwards. A worker that read in between got an empty
    message and crashed. The same happened with an exchange's file that the job clock, which starts
    at the same time, had just created.
    """

    def _queue_bind(self, *binding: Any) -> None:
        for _ in range(READ_ATTEMPTS):
            try:
                super()._queue_bind(*binding)
            except ValueError:  # the file is still empty
                time.sleep(READ_RETRY_S)
            else:
                return
        # The process that created the file died while it wrote.
        (Path(self.control_folder) / f"{binding[0]}.exchange").unlink(missing_ok=True)
        super()._queue_bind(*binding)

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]  # stubs differ in names
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        path = Path(self.data_folder_out) / name
        unfinished = path.with_name(f".{name}.new")  # a name that no queue matches
        try:
            unfinished.write_text(dumps(payload), encoding="utf-8")
            unfinished.replace(path)
        except OSError as error:
            raise ChannelError(
                f"Cannot add a message to {self.data_folder_out}: {error.strerror}"
            ) from error

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        try:
            return super()._get(queue)
        except ValueError:
            # The message was cut by a power failure and is already removed. The next tick does its
            # work.
            raise Empty from None


class FileTransport(filesystem.Transport):
    """File broker that polls often: Celery handles SIGTERM only between two polls."""

    Channel = FileChannel

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        super().drain_events(
            connection, timeout=min(timeout or BROKER_POLL_S, BROKER_POLL_S), **kwargs
        )


class MonotonicScheduler(Scheduler):
    """Sends each job once per period by the monotonic clock; logs when the wall clock is set.

    Celery's own scheduler computes the next run from the wall clock. After a step of two hours back
    it sends nothing for two hours. This scheduler stores nothing: after a restart every job waits
    one period.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._due_s: dict[str, float] = {}
        self._wall_offset_s = _wall_offset()
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        self.merge_inplace(self.app.conf.beat_schedule)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send every job that is due; return the seconds until the next one is."""
        self._report_clock_step()
        now_s = time.monotonic()
        for name, entry in list(self.schedule.items()):
            period_s = self.app.conf.beat_schedule[name]["schedule"]
            if self._due_s.setdefault(name, now_s + period_s) <= now_s:
                # After a suspended machine wakes, a job runs once and not once per missed period.
                self._due_s[name] = now_s + period_s
                self.apply_entry(self.reserve(entry), producer=self.producer)  # type: ignore[arg-type]  # stubs err
        return max(0.0, min(self._due_s.values()) - time.monotonic())

    def _report_clock_step(self) -> None:
        moved_s = _wall_offset() - self._wall_offset_s
        self._wall_offset_s += moved_s
        if abs(moved_s) > CLOCK_STEP_S:
            log.warning("clock_moved", by_s=round(moved_s, 1), detail="Jobs keep their intervals.")


def _wall_offset() -> float:
    """Return wall clock minus monotonic clock: constant until the wall clock is set."""
    return time.time() - time.monotonic()


@setup_logging.connect
def _keep_our_logging(**kwargs: object) -> None:
    """Having a receiver makes Celery leave the logging that Django has set up."""


TRANSPORT_ALIASES["filesystem"] = f"{__name__}:{FileTransport.__name__}"

# Celery warns root about messages that carry code. Ours are JSON, and the web server has the same
# privileges.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("gatebook")
app.conf.update(
    broker_url=settings.CELERY_BROKER_URL,
    broker_transport_options=build_broker_options(
        settings.CELERY_BROKER_URL, settings.CELERY_FOLDER
    ),
    broker_connection_retry_on_startup=True,
    accept_content=["json"],
    task_ignore_result=True,
    timezone="UTC",
    worker_enable_remote_control=False,
    beat_scheduler=f"{__name__}:{MonotonicScheduler.__name__}",
    beat_schedule={
        # A message older than its period is useless: the next one does the same work.
        "outbox-deliver": {
            "task": "journal.tasks.deliver_outbox",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        "notifications-send": {
            "task": "notifications.tasks.send_notifications",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        # Readers treat a passed deadline as passed. This job records it and notifies people and
        # agents.
        "gates-expire": {
            "task": "approvals.tasks.expire_gates",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        # Readers derive what is stuck. This job records it and notifies people.
        "stuck-sweep": {
            "task": "monitoring.tasks.sweep_stuck",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        # Searches read what is newer than the index themselves, which should be little.
        "search-index": {
            "task": "investigation.tasks.update_search_index",
            "schedule": 3.0,
            "options": {"expires": 3.0},
        },
        # A run stays while entries arrive, so that they are sealed within a second.
        "seal-journal": {
            "task": "proofs.tasks.seal_journal",
            "schedule": 1.0,
            "options": {"expires": 1.0},
        },
        # Checks of requests claim no first use while earlier plans are not read.
        "name-index": {
            "task": "ledger.tasks.update_name_index",
            "schedule": 3.0,
            "options": {"expires": 3.0},
        },
        # The overview counts itself what is newer than these counts, which should be little.
        "effect-hours": {
            "task": "monitoring.tasks.count_effect_hours",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        # A run takes at most 10 s, and the next continues where it ended.
        "alerts-run": {
            "task": "investigation.tasks.run_alerts",
            "schedule": 60.0,
            "options": {"expires": 60.0},
        },
        # One at a time, by one worker; the other worker serves what people and agents wait for.
        "exports-run": {
            "task": "investigation.tasks.run_exports",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        # A run takes about 2 s, and the next continues where it ended.
        "erasures-run": {
            "task": "erasure.tasks.run_erasures",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        # Texts expire at the beginning of a month; a run takes at most 5 s, the next continues.
        "retention-run": {
            "task": "retention.tasks.run_retention",
            "schedule": 60.0,
            "options": {"expires": 60.0},
        },
        # It waits two seconds for its anchors; one that takes longer goes on in its own thread.
        "anchors-publish": {
            "task": "proofs.anchors.tasks.anchor_heads",
            "schedule": 5.0,
            "options": {"expires": 5.0},
        },
        "idempotency-keys-prune": {
            "task": "api.tasks.prune_idempotency_keys",
            "schedule": 3600.0,
            "options": {"expires": 3600.0},
        },
    },
)
app.autodiscover_tasks()
app.autodiscover_tasks(["proofs.anchors"])
