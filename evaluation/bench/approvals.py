"""The approval benchmark of the benchmark: what is measured, in which order, with how many gates."""

from typing import Final

from evaluation.bench import gates, races, search
from evaluation.bench.installation import Server
from evaluation.bench.report import Report
from evaluation.bench.reviewer_process import Reviewers

READS: Final = 40  # of the inbox
TOOLS: Final = """
tools:
  bench.push: {class: idempotent, reversibility: compensable}
  git.push: {class: probeable, reversibility: compensable}
"""


def measure(report: Report, server: Server, *, pending: int, rounds: int, batches: int) -> None:
    """Measure on a fresh installation with `pending` gates, most of which are decided on the way."""
    token = server.installation.issue_token("bench")
    tools = server.installation.folder / "tools.yaml"
    tools.write_text(TOOLS, encoding="utf-8")
    server.installation.manage("load_tools", str(tools))
    with Reviewers(server.installation) as people:
        benchmark = gates.GateBenchmark(report, server, people, token)
        benchmark.open_gates(pending)
        search.wait_until_quiet(server)  # the search index is up to date now
        benchmark.measure_inbox(READS)
        for waiters in (0, gates.WAITERS):
            benchmark.measure_unblocking(min(pending // 8, gates.MOST_RULINGS), waiters)
        benchmark.measure_offsets(pending // 5)
        races.race_voters(benchmark, pending // 25)
        races.race_dispatchers(benchmark, pending // 25)
        races.race_revocations(benchmark, pending // 5)
        benchmark.measure_ingest(rounds, batches)
        benchmark.measure_plan()
        races.measure_restarts(benchmark, pending // 10)
