"""Redis as the broker: its client is installed with Gatebook, and jobs run through Redis."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection

from config import supervisor
from config.celery import build_broker_options
from evaluation.bench.installation import own_port
from tests.config.server import ROOT, Server
from tests.config.test_supervisor import wait_until

pytestmark = pytest.mark.once
HEARTBEATS = """
import json
from monitoring.models import JobHeartbeat
print(json.dumps(dict(JobHeartbeat.objects.values_list("name", "succeeded_us"))))
"""


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_client_is_in_the_lock_files(lock: str) -> None:
    assert re.search(r"(?m)^redis==\S+ \\$", (ROOT / lock).read_text())


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:6379/0", "rediss://127.0.0.1:6379/0", "amqp://127.0.0.1//"]
)
def test_the_transport_of_a_broker_that_the_documents_name_can_be_loaded(
    url: str, tmp_path: Path
) -> None:
    with Connection(url, transport_options=build_broker_options(url, tmp_path)) as connection:
        assert connection.transport.driver_type == url.partition(":")[0].replace("rediss", "redis")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a Redis for the test; empty where none is installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        yield ""
        return
    with own_port() as port:
        settings = (
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(tmp_path),
        )
        with subprocess.Popen([program, *settings], stdout=subprocess.DEVNULL) as server:
            yield f"redis://127.0.0.1:{port}/0"
            server.terminate()


def test_jobs_run_through_a_redis(
    live_server_process: Server, redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not redis:
        return  # the other tests need no Redis
    for name, value in live_server_process.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CELERY_BROKER_URL", redis)
    began_us = time.time_ns() // 1_000
    jobs = supervisor.Supervisor(supervisor.build_job_children(tmp_path))
    for child in jobs.children:
        child.start()
    try:
        wait_until(
            lambda: (
                json.loads(live_server_process.run(HEARTBEATS)).get("search_index", 0) > began_us
            )
        )
        assert jobs.fallen() is None
    finally:
        jobs.stop()
