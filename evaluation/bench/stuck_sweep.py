"""What a sweep costs over a million sessions of which a thousand are overdue: `python -m
evaluation.bench.stuck_sweep`.

An installation of its own on each database; one session and its lease come in through the product's
verbs and are then copied by the database. Live ones are due in an hour, the overdue died a minute
ago. Three sweeps are measured inside one process: the first sees, the second raises (entry,
transition and note to the outbox of each), the third finds nothing new; then the board is read. The
bar is one second a sweep.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from evaluation.bench.installation import ROOT, VENDORS, ground, install

BAR_S: Final = 1.0
FILLED_S: Final = 1800  # the laws of leases are triggers, and a million of them take their time
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
    if postgresql:  # the rows that are copied have kept the laws; a million times asked they take half an hour
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
told = {{"sessions": Session.objects.count()}}
for name in ("sees", "raises", "rests"):
    started, spent = time.perf_counter(), time.process_time()
    done = sweeper.sweep_stuck()
    told[name] = round(time.perf_counter() - started, 3)
    told[name + "_cpu"] = round(time.process_time() - spent, 3)
    told[name + "_did"] = [done.stuck, done.raised, done.cleared]
started = time.perf_counter()
with CaptureQueriesContext(connection) as queries:
    found = board.load_board(project, now_us())
told["board_s"] = round(time.perf_counter() - started, 3)
told |= {{"board_rows": len(found.rows), "board_queries": len(queries)}}
print("TOLD " + json.dumps(told))
"""


def main() -> int:
    """Measure, print one line of JSON per database, and end with 1 where a sweep took longer than
    its bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--overdue", type=int, default=1_000)
    parser.add_argument("--database", choices=VENDORS, action="append")
    asked = parser.parse_args()
    slow = False
    for vendor in asked.database or VENDORS:
        with tempfile.TemporaryDirectory(prefix="gatebook-sweeps-") as folder:
            told = _measured(vendor, Path(folder), asked.sessions, asked.overdue)
        slow |= max(told[name] for name in ("sees", "raises", "rests")) > BAR_S
        sys.stdout.write(json.dumps({"database": vendor, **told}) + "\n")
    return int(slow)


def _measured(vendor: str, folder: Path, sessions: int, overdue: int) -> dict[str, float]:
    # PostgreSQL keeps its data outside closed folders; `embedded:` makes the folder itself and
    # refuses another's.
    with ground(vendor, folder, Path(f"/var/tmp/gatebook-sweeps-{os.getpid()}")) as cluster:  # noqa: S108
        installation = install(vendor, folder / "house", cluster)
        command = [
            sys.executable,
            "manage.py",
            "shell",
            "-v0",
            "-c",
            _INSIDE.format(number=sessions, overdue=overdue),
        ]
        said = subprocess.run(
            command,
            cwd=ROOT,
            env=installation.environment,
            capture_output=True,
            text=True,
            timeout=FILLED_S,
            check=True,
        ).stdout
        lines = [line for line in said.splitlines() if line.startswith("TOLD ")]
        found: dict[str, float] = json.loads(lines[-1].removeprefix("TOLD "))
        return found


if __name__ == "__main__":
    raise SystemExit(main())
