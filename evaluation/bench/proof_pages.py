"""Proofs: the page of one entry's proof and the page of the seal, beside a million sealed entries.

The journal is filled by SQL with copies of entries that the product wrote, above all others, and
the product's sealer seals them. A head is signed while it does, so that entries have different
heads. CPU time is that of web server and database together.
"""

import re
import sqlite3
import sys
import time
from contextlib import closing
from typing import Final

import psycopg

from evaluation.bench import clients
from evaluation.bench.installation import Installation, serve
from evaluation.bench.person import Person
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import Writer

PROOF_BAR_MS: Final = 60.0
SEAL_BAR_MS: Final = 60.0
WARM_READS: Final = 5
SEED_EFFECTS: Final = 300
STRIDE: Final = 382_813  # a prime
PORTION: Final = 100_000  # entries that one statement copies
_OWN: Final = frozenset({"position", "txid"})
_CHANGED: Final = {"id": "id || '~' || copies.k", "session": "NULL", "effect": "NULL"}


def measure(report: Report, installation: Installation, *, entries: int, reads: int) -> None:
    """Measure on a fresh installation that is filled with `entries` sealed entries."""
    token, vendor = installation.issue_token("bench"), installation.vendor
    with serve(installation) as server:
        writer, batches = Writer("proofs", sessions=3), []
        while writer.effects < SEED_EFFECTS:
            batches += writer.mixed(1)
        clients.run_together([clients.post_batches(server.port, token, batches)])
    started = time.monotonic()
    last = _fill_journal(installation, entries)
    installation.manage("seal_journal")
    sys.stderr.write(f"{vendor}: {last:,} entries sealed in {time.monotonic() - started:.0f} s\n")
    with serve(installation) as server:
        person = Person(server.port, installation.administrator, installation.password)
        shown = re.search(rb"Sealed up to entry ([\d\xe2\x80\xaf]+)", person.get("/proofs/"))
        if shown is None or int(re.sub(rb"\D", b"", shown[1])) < last:
            raise RuntimeError("the journal is not sealed")
        first = last - entries + 1
        for name, bar in (("proof page", PROOF_BAR_MS), ("seal page", SEAL_BAR_MS)):
            spent, cpu_s = [], 0.0
            for number in range(WARM_READS + reads):
                # Spread over the journal, in no order.
                position = first + number * STRIDE % entries
                path = f"/proofs/entries/{position}/" if name == "proof page" else "/proofs/"
                before, started = server.cpu_s(), time.perf_counter()
                text = person.get(path)
                if number >= WARM_READS:
                    spent.append(1000 * (time.perf_counter() - started))
                    cpu_s += server.cpu_s() - before
                if name == "proof page" and b"Sealed under head" not in text:
                    raise RuntimeError(f"entry {position} has no proof")
            title = f"{name}, {entries:,} entries"
            for share in (50, 95):
                value = percentile(spent, share / 100)
                report.add(
                    vendor, f"{title}: p{share}", "ms", [value], bar=bar if share == 95 else None
                )
            report.add(vendor, f"{title}: CPU of server and database", "ms", [1000 * cpu_s / reads])


def _fill_journal(installation: Installation, entries: int) -> int:
    """Copy plans until so many entries are added; return the last position."""
    connection: sqlite3.Connection | psycopg.Connection[tuple[int, ...]]
    if installation.cluster is None:
        connection = sqlite3.connect(installation.sqlite_file, isolation_level=None)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(journal_entry)")]
    else:
        connection = psycopg.connect(installation.url, autocommit=True)
        described = connection.execute("SELECT * FROM journal_entry LIMIT 0").description or []
        columns = [column.name for column in described]
    with closing(connection):
        kept = [name for name in columns if name not in _OWN]
        chosen = ", ".join(_CHANGED.get(name, name) for name in kept)
        row = connection.execute(
            "SELECT count(*) FROM journal_entry WHERE kind = 'effect.planned'"
        ).fetchone()
        seeds = int(row[0]) if row else 0
        copies, step = -(-entries // seeds), max(PORTION // seeds, 1)
        for start in range(0, copies, step):
            connection.execute(
                "WITH RECURSIVE copies(k) AS"
                f" (SELECT {start} UNION ALL SELECT k + 1 FROM copies"
                f" WHERE k + 1 < {min(start + step, copies)})"
                f" INSERT INTO journal_entry ({', '.join(kept)}) SELECT {chosen} FROM copies"
                " CROSS JOIN (SELECT * FROM journal_entry WHERE kind = 'effect.planned'"
                f" ORDER BY position LIMIT {seeds}) AS seed"
            )
        last = connection.execute("SELECT max(position) FROM journal_entry").fetchone()
    return int(last[0]) if last else 0
