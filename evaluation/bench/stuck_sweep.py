"""Cost of a stuck sweep: a million sessions, a thousand overdue.

`python -m evaluation.bench.stuck_sweep`

Each database gets its own installation. One session and its lease are created through the product
and then copied by SQL. Live leases are due in an hour; the overdue died a minute ago. Three sweeps
are measured in one process: the first detects, the second raises (an entry, a transition and an
outbox row each), the third finds nothing new. Then the board is read. The bar is one second per
sweep.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from evaluation.bench.installation import ROOT, VENDORS, install, provide_cluster

BAR_S: Final = 1.0
FILLED_S: Final = 1800  # leases have triggers, and a million of them take minutes
_INSIDE: Final = """
import json, time
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from monitoring.stuck import board
from monitoring.stuck import sweeper
from db.clock import now_us
from accounts.models import Project
from sessions.models import Session
from sessions.models import Lease
from accounts import agents

NUMBER, OVERDUE = {number}, {overdue}
project = Project.objects.get(name="default")
now = now_us()
with transaction.atomic():
    agent = agents.ensure_agent(project, "fleet")
    session = Session.objects.create(project=project, key="template", agent=agent, mode="leased", opened_position=1,
        created_at_us=now, seen_at_us=now)
    times = {{name: now for name in ("acquired_at_us", "heartbeat_at_us", "progress_at_us")}}
    dues = {{name: now + 3_600_000_000 for name in ("expires_at_us", "dead_at_us", "wedged_at_us")}}
    lease = Lease.objects.create(id=session.id, project=project, kind="session", subject=str(session.id),
        session=session, agent=agent, process="w", ttl_s=60, opened_position=1, **times, **dues)
postgresql = connection.vendor == "postgresql"
identity = "lpad(to_hex(i), 32, '0')::uuid" if postgresql else "printf('%032x', i)"
text = "i::text" if postgresql else "CAST(i AS TEXT)"
series = ("SELECT i FROM generate_series(1, %d) i" if postgresql else
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n") % NUMBER
late = f"CASE WHEN i % {{NUMBER // OVERDUE}} = 0 THEN {{now - 60_000_000}} ELSE {{now + 3_600_000_000}} END"
earlier = str(now - 200_000_000)
copies = [
    (Session, "key = 'template'", {{"id": identity, "key": text, "opened_position": "i + 1"}}),
    (Lease, "session_id = (SELECT id FROM agent_sessions_session WHERE key = 'template')",
     {{"id": identity, "session_id": identity, "subject": text, "opened_position": "i + 1", "dead_at_us": late,
      "expires_at_us": late, "heartbeat_at_us": earlier, "progress_at_us": earlier}}),
]
with connection.cursor() as cursor:
    if postgresql:  # the copied rows satisfy the constraints; checking them takes half an hour
        cursor.execute("SET session_replication_role = replica")
    for model, template, changed in copies:
        names = [field.column for field in model._meta.local_fields]
        values = ", ".join(changed.get(name, f't."{{name}}"') for name in names)
        columns = ", ".join(f'"{{name}}"' for name in names)
        table = model._meta.db_table
        cursor.execute(f"INSERT INTO {{table}} ({{columns}}) SELECT {{values}} FROM ({{series}}) AS n, {{table}} t"
            f" WHERE t.{{template}}")
    if postgresql:
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("VACUUM ANALYZE")
results = {{"sessions": Session.objects.count()}}
for name in ("detects", "raises", "repeats"):
    started, spent = time.perf_counter(), time.process_time()
    done = sweeper.sweep_stuck()
    results[name] = round(time.perf_counter() - started, 3)
    results[name + "_cpu"] = round(time.process_time() - spent, 3)
    results[name + "_counts"] = [done.stuck, done.raised, done.cleared]
started = time.perf_counter()
with CaptureQueriesContext(connection) as queries:
    stuck_board = board.load_board(project, now_us())
results["board_s"] = round(time.perf_counter() - started, 3)
results |= {{"board_rows": len(stuck_board.rows), "board_queries": len(queries)}}
print("RESULTS " + json.dumps(results))
"""


def main() -> int:
    """Measure and print one line of JSON per database; exit with 1 if a sweep exceeds its bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--overdue", type=int, default=1_000)
    parser.add_argument("--database", choices=VENDORS, action="append")
    options = parser.parse_args()
    slow = False
    for vendor in options.database or VENDORS:
        with tempfile.TemporaryDirectory(prefix="gatebook-sweeps-") as folder:
            figures = _measure_sweeps(vendor, Path(folder), options.sessions, options.overdue)
        slow |= max(figures[name] for name in ("detects", "raises", "repeats")) > BAR_S
        sys.stdout.write(json.dumps({"database": vendor, **figures}) + "\n")
    return int(slow)


def _measure_sweeps(vendor: str, folder: Path, sessions: int, overdue: int) -> dict[str, float]:
    # PostgreSQL keeps its data outside private folders; `embedded:` creates the folder itself.
    data = Path(f"/var/tmp/gatebook-sweeps-{os.getpid()}")  # noqa: S108
    with provide_cluster(vendor, folder, data) as cluster:
        installation = install(vendor, folder / "installation", cluster)
        command = [
            sys.executable,
            "manage.py",
            "shell",
            "-v0",
            "-c",
            _INSIDE.format(number=sessions, overdue=overdue),
        ]
        output = subprocess.run(
            command,
            cwd=ROOT,
            env=installation.environment,
            capture_output=True,
            text=True,
            timeout=FILLED_S,
            check=True,
        ).stdout
        lines = [line for line in output.splitlines() if line.startswith("RESULTS ")]
        figures: dict[str, float] = json.loads(lines[-1].removeprefix("RESULTS "))
        return figures


if __name__ == "__main__":
    raise SystemExit(main())
