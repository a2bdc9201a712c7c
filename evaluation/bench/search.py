"""What searching costs those who write: the upkeep of all that searches go by, and queries that
take longest.

Upkeep is measured on two equal installations, of which one has the indexes of searches taken away
and its words told to be read already. The longest queries run on the book that pages were read
from, by twenty agents at once.
"""

import http.client
import sqlite3
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from typing import Final
from urllib.parse import urlencode

import psycopg

from evaluation.bench import clients, procfs
from evaluation.bench.installation import Installation, Server, clone, serve
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import Writer

UPKEEP_BAR: Final = 1.5
HOSTILE_BAR: Final = 2.0
SEARCHERS: Final = 20
WRITERS: Final = 2
WORST: Final = "since:30d | group tool | max(attempts), p95(took), count"
INDEXES: Final = ("entry_by_kind", "entry_by_person", "effect_tried_again")
LOOK_S: Final = 2.0
QUIET_SHARE: Final = 0.1  # of one processor
QUIET_WITHIN_S: Final = 90
_STRIP: Final = (
    *(f"DROP INDEX {name}" for name in INDEXES),
    "UPDATE monitoring_jobheartbeat SET position = 1000000000000 WHERE name = 'search_index'",
)


def upkeep(report: Report, fresh: Installation, *, rounds: int, batches: int) -> None:
    """Measure writing with and without the upkeep of searches. `fresh` must not be running."""
    spent: dict[str, list[float]] = {}
    for name in ("with", "without"):
        installation = clone(fresh, f"{name}_search")
        installation.manage("update_search_index")
        if name == "without":
            _strip(installation)
        token = installation.token("bench")
        with serve(installation) as server:
            for number in range(
                rounds + 1
            ):  # the first is not counted: every worker meets every statement
                sys.stderr.write(
                    f"{fresh.vendor}: writing {name} upkeep of searches, round {number} of "
                    f"{rounds}\n"
                )
                sent = [Writer(f"u{number}{n}").mixed(batches) for n in range(WRITERS)]
                items = sum(batch.items for part in sent for batch in part)
                before = _cpu_s(server)
                clients.together([clients.post_batches(server.port, token, part) for part in sent])
                until_quiet(server)
                if number:
                    spent.setdefault(name, []).append(1000 * (_cpu_s(server) - before) / items)
    for name, values in spent.items():
        report.add(
            fresh.vendor,
            f"writing {name} upkeep of searches: CPU",
            "CPU-s per 1,000 events",
            values,
        )
    ratios = [one / other for one, other in zip(spent["with"], spent["without"], strict=True)]
    note = "with the job worker, until all words are read"
    report.add(
        fresh.vendor, "writing: with upkeep against without", "×", ratios, bar=UPKEEP_BAR, note=note
    )


def hostile(report: Report, server: Server, token: str, *, rounds: int, batches: int) -> None:
    """Measure what evidence takes while twenty agents ask what takes longest.

    Each stretch begins when the job worker has read what the one before wrote: it would burden the
    second of the two. Of fewer than a hundred batches the p99 would be the slowest, and a stretch
    over before the first query is.
    """
    vendor = server.installation.vendor
    tokens = [server.installation.token(f"asks-{n}") for n in range(SEARCHERS)]
    seen: dict[int, list[float]] = {0: [], SEARCHERS: []}
    answers: Counter[int] = Counter()
    for number in range(rounds):
        for asking, values in seen.items():
            sys.stderr.write(
                f"{vendor}: evidence beside {asking} who search, round {number + 1} of {rounds}\n"
            )
            sent = [Writer(f"h{number}{asking}{n}").mixed(batches) for n in range(WRITERS)]
            until_quiet(server, database=False)
            over = threading.Event()
            asked = [
                threading.Thread(target=_ask, args=(server.port, one, over, answers))
                for one in tokens[:asking]
            ]
            for thread in asked:
                thread.start()
            time.sleep(1.0 if asked else 0.0)
            works = [clients.post_batches(server.port, token, part) for part in sent]
            values += [1000 * value for value in clients.together(works).all]
            over.set()
            for thread in asked:
                thread.join()
    for asking, values in seen.items():
        report.add(
            vendor,
            f"evidence beside {asking} who search: p99",
            "ms per batch",
            [percentile(values, 0.99)],
        )
    ratio = percentile(seen[SEARCHERS], 0.99) / percentile(seen[0], 0.99)
    told = ", ".join(f"{number} of {status}" for status, number in sorted(answers.items()))
    name = f"evidence: p99 with {SEARCHERS} who search against none"
    report.add(vendor, name, "×", [ratio], bar=HOSTILE_BAR, note=f"they were answered: {told}")


def _ask(port: int, token: str, over: threading.Event, answers: "Counter[int]") -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    path = f"/api/v1/search?{urlencode({'q': WORST})}"
    while not over.is_set():
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        answers[answer.status] += 1
        if answer.status == 429:
            time.sleep(0.1)
    connection.close()


def _strip(installation: Installation) -> None:
    if installation.cluster is None:
        with closing(sqlite3.connect(installation.sqlite_file, isolation_level=None)) as file:
            for statement in _STRIP:
                file.execute(statement)
        return
    with psycopg.connect(installation.url, autocommit=True) as connection:
        for statement in _STRIP:
            connection.execute(statement)


def _cpu_s(server: Server) -> float:
    """Processor seconds of all there is, the job worker included."""
    return procfs.cpu_s([server.supervisor.pid, *server.installation.database_roots()])


def until_quiet(server: Server, *, database: bool = True) -> None:
    """Wait until the job worker has read what was written; RuntimeError when it does not come to an
    end.

    Without `database` PostgreSQL may go on with its own chores, which after a filling take minutes.
    """
    roots = [server.supervisor.pid, *(server.installation.database_roots() if database else [])]
    until, used = time.monotonic() + QUIET_WITHIN_S, procfs.cpu_s(roots)
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        before, used = used, procfs.cpu_s(roots)
        if used - before < QUIET_SHARE * LOOK_S:
            return
    raise RuntimeError("the job worker did not come to an end")
