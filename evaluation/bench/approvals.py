"""The part of the benchmark in which people decide: what is measured, in which order, and of how
many gates."""

from typing import Final

from evaluation.bench import gates, races, search
from evaluation.bench.installation import Server
from evaluation.bench.report import Report
from evaluation.bench.reviewer_process import Deciders

READS: Final = 40  # of the inbox
TOOLS: Final = """
tools:
  bench.push: {class: idempotent, reversibility: compensable}
  git.push: {class: probeable, reversibility: compensable}
"""


def measure(report: Report, server: Server, *, pending: int, rounds: int, batches: int) -> None:
    """Measure on a fresh installation with so many pending gates, most of which are decided on the
    way."""
    token = server.installation.token("bench")
    tools = server.installation.folder / "tools.yaml"
    tools.write_text(TOOLS, encoding="utf-8")
    server.installation.manage("load_tools", str(tools))
    with Deciders(server.installation) as people:
        part = gates.Part(report, server, people, token)
        part.open(pending)
        search.until_quiet(server)  # the words of all that was opened are read now
        part.inbox(READS)
        for waiters in (0, gates.WAITERS):
            part.unblocked(min(pending // 8, gates.MOST_RULINGS), waiters)
        part.offsets(pending // 5)
        races.of_deciders(part, pending // 25)
        races.of_users(part, pending // 25)
        races.of_revocations(part, pending // 5)
        part.ingest(rounds, batches)
        part.plan()
        races.of_restarts(part, pending // 10)
