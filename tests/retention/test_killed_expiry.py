"""kill -9 during an expiry: every body is whole or gone with its record; the next run continues."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
from django.conf import settings
from django.db import connection

from journal.models import Body, Entry, Erasure
from retention import expiry
from tests.erasure.conftest import Office
from tests.erasure.test_erasure_requests import database_url
from tests.proofs.sealing import seal_entries, verify_here
from tests.retention.past_entries import activate, append_texts

# The batch after ten bodies is deleted and never committed: there the process waits for its end.
KILLED = """
import django; django.setup()
import signal
from journal import entries
from retention import expiry
expiry.WINDOW = 5
delete, deleted = entries.delete_bodies, []
def stop_after_ten(positions):
    delete(positions)
    if len(deleted) >= 10:
        signal.pause()
    deleted.extend(positions)
entries.delete_bodies = stop_after_ten
while True:  # PostgreSQL notices a moment later that the process of the run before is dead
    expiry.run_retention()
"""


def run_and_kill(positions: list[int], folder: Path) -> None:
    environment = {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": database_url(),
        "GATEBOOK_VAR": str(folder),
        "GATEBOOK_PEPPER": settings.GATEBOOK_PEPPER.hex(),
        "GATEBOOK_SECRET_KEY": "k" * 64,
        "PATH": os.environ["PATH"],
    }
    connection.close()
    before = Body.objects.filter(entry__in=positions).count()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], env=environment, cwd=settings.BASE_DIR
    )
    try:
        ends = time.monotonic() + 300
        while Body.objects.filter(entry__in=positions).count() > before - 10:
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def check_whole(positions: list[int]) -> int:
    """Assert that each body is there or recorded as gone, never both; return how many are left."""
    left = set(Body.objects.filter(entry__in=positions).values_list("entry_id", flat=True))
    gone = dict(Erasure.objects.filter(entry__in=positions).values_list("entry_id", "expired_by"))
    assert left | set(gone) == set(positions)
    assert not left & set(gone)
    facts = {
        row.position: orjson.loads(row.facts)["count"]
        for row in Entry.objects.filter(kind="retention.expired")
    }
    assert set(facts) == set(gone.values())
    assert sum(facts.values()) == len(gone)
    return len(left)


def test_two_kills_leave_nothing_half_expired(office: Office, own_folder: Path) -> None:
    world = office.world
    positions = append_texts(world, "effect.planned", [str(n) for n in range(60)], 200)
    fresh = append_texts(world, "effect.planned", ["new"], 1)
    activate(world)
    for left in (50, 40):
        run_and_kill(positions, own_folder)
        assert check_whole(positions) == left
    ends = time.monotonic() + 60
    while check_whole(positions) and time.monotonic() < ends:
        expiry.run_retention()
    assert check_whole(positions) == 0
    assert Body.objects.filter(entry__in=fresh).exists()
    seal_entries()
    report = verify_here()
    assert not report.is_broken, report.findings
    assert report.counts["erased"] == len(positions)
