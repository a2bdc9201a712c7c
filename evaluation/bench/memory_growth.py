"""Memory growth: the server's resident memory after each tenth of repeated work.

Batches, commands and pages alternate within a tenth. Every thread has thus run every kind of work
by the end of the first tenth, so its caches do not count as growth.
"""

import sys
from typing import Final

from evaluation.bench import clients
from evaluation.bench.installation import Server
from evaluation.bench.person import Person
from evaluation.bench.report import Report
from evaluation.bench.workload import WORKLOADS, Writer

TENTHS: Final = 10
RATIO_BAR: Final = 1.1
TURN: Final = 6  # batches of a client in one turn, or all of them if fewer
MEGABYTE: Final = 1024 * 1024
READS: Final = 10  # of each page in a turn
PAGES: Final = ("/sessions/", "/search/", "/search/?q=state:failed+tool:git.push")


def measure(report: Report, server: Server, *, batches: int, effects: int, barred: bool) -> None:
    """Repeat the work of agents and a person ten times, with `batches` per workload and client."""
    vendor = server.installation.vendor
    resident: list[float] = []
    turns = max(1, batches // TURN)
    token = server.installation.issue_token("bench")
    person = Person(server.port, server.installation.administrator, server.installation.password)
    for tenth in range(TENTHS):
        sys.stderr.write(f"{vendor}: memory, tenth {tenth + 1} of {TENTHS}\n")
        for turn in range(turns):
            name = f"{tenth}-{turn}-"
            for workload in WORKLOADS:
                writers = [
                    Writer(f"g{workload[0]}{name}{client}", rich=True) for client in range(2)
                ]
                sent = [writer.batches(workload, batches // turns) for writer in writers]
                clients.run_together(
                    [clients.post_batches(server.port, token, part) for part in sent]
                )
            clients.run_together(
                [clients.make_life_cycles(server.port, token, f"g{name}", 16, effects // turns)]
            )
            for path in PAGES * READS:
                person.get(path)
        resident.append(server.resident_bytes() / MEGABYTE)
    person.close()
    report.add(vendor, "memory of the server after the first tenth", "MB", resident[:1])
    report.add(vendor, "memory of the server after the last tenth", "MB", resident[-1:])
    note = "after each tenth: " + ", ".join(f"{size:.0f}" for size in resident)
    report.add(
        vendor,
        "memory: last tenth against first",
        "×",
        [resident[-1] / resident[0]],
        bar=RATIO_BAR if barred else None,
        note=note,
    )
