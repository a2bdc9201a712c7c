"""The overview with requests that wait, tools and an agent, in a journal of a million effects.

After the effects of a month are filled in, the counts are rebuilt, which is measured too.
"""

import re
import sys
import time
from typing import Final

from evaluation.bench import bulk_seed, gates, search
from evaluation.bench.cards import post_history
from evaluation.bench.installation import Installation, Server, serve
from evaluation.bench.person import Person
from evaluation.bench.report import Report, percentile
from evaluation.bench.review_calls import RULES, TOOLS, make_call
from evaluation.bench.reviewer_process import Reviewers

OVERVIEW_BAR_MS: Final = 100.0  # p95
ACTIVITY_BAR_MS: Final = 150.0  # p95 of the tools page and the page of an agent
_AGENT: Final = re.compile(rb"/agents/[0-9a-f-]{36}/")
WARM_READS: Final = 5
HISTORY: Final = 2_000  # effects of today


def measure(
    report: Report, installation: Installation, *, effects: int, pending: int, reads: int
) -> None:
    """Measure on a fresh installation that is filled with `effects` effects."""
    vendor, token = installation.vendor, installation.issue_token("bench")
    tools = installation.folder / "tools.yaml"
    tools.write_text(TOOLS, encoding="utf-8")
    installation.manage("load_tools", str(tools))
    (filling,) = bulk_seed.plan_fillings((effects,))
    bulk_seed.raise_positions(installation, filling.first)
    with serve(installation) as server:
        bulk_seed.post_seed(server, token, filling.seed)
    installation.manage("update_search_index")
    bulk_seed.copy_seed(installation, filling)
    sys.stderr.write(f"{vendor}: {effects:,} effects filled\n")
    started = time.monotonic()
    installation.manage("rebuild_counts")
    report.add(vendor, "counts of hours and days rebuilt", "s", [time.monotonic() - started])
    with serve(installation) as server, Reviewers(installation, RULES) as people:
        post_history(server, token, HISTORY, sessions=-(-pending // gates.SESSION_EFFECTS))
        benchmark = gates.GateBenchmark(report, server, people, token)
        benchmark.open_gates(pending, make_call)
        search.wait_until_quiet(server, database=False)
        person = Person(server.port, installation.administrator, installation.password)
        if f"{pending} in the" not in person.get("/").decode():
            raise RuntimeError("the overview does not show the requests")
        agent = _AGENT.search(person.get("/sessions/"))
        if agent is None:
            raise RuntimeError("no page of an agent is linked")
        for name, path, bar in (
            ("overview", "/", OVERVIEW_BAR_MS),
            ("tools page", "/tools/", ACTIVITY_BAR_MS),
            ("page of an agent", agent[0].decode(), ACTIVITY_BAR_MS),
        ):
            title = f"{name}, {effects:,} effects, {pending} pending"
            _measure_page(report, server, person, path, title, reads=reads, bar=bar)


def _measure_page(
    report: Report, server: Server, person: Person, path: str, title: str, *, reads: int, bar: float
) -> None:
    vendor = server.installation.vendor
    for _ in range(WARM_READS):
        person.get(path)
    spent, before = [], server.cpu_s()
    for _ in range(reads):
        begun = time.perf_counter()
        person.get(path)
        spent.append(1000 * (time.perf_counter() - begun))
    cpu_ms = 1000 * (server.cpu_s() - before) / reads
    report.add(vendor, f"{title}: p50", "ms", [percentile(spent, 0.5)])
    report.add(vendor, f"{title}: p95", "ms", [percentile(spent, 0.95)], bar=bar)
    report.add(vendor, f"{title}: CPU of server and database", "ms", [cpu_ms])
