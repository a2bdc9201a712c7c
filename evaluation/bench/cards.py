"""Cards: inbox and requests with all checks, beside a journal of a million effects."""

import sys
from typing import Final

from evaluation.bench import bulk_seed, clients, gates, search
from evaluation.bench.installation import Installation, Server, serve
from evaluation.bench.report import Report
from evaluation.bench.review_calls import RULES, TOOLS, CallWriter, make_call
from evaluation.bench.reviewer_process import Reviewers

HISTORY: Final = 5  # earlier calls of the same kinds for each pending request
REFUSED: Final = 20  # one request of so many is denied before the others are read
INBOX_READS: Final = 40


def measure(
    report: Report, installation: Installation, *, effects: int, pending: int, reads: int
) -> None:
    """Measure on a fresh installation that is filled with `effects` effects and `pending` gates."""
    token = installation.issue_token("bench")
    tools = installation.folder / "tools.yaml"
    tools.write_text(TOOLS, encoding="utf-8")
    installation.manage("load_tools", str(tools))
    (filling,) = bulk_seed.plan_fillings((effects,))
    bulk_seed.raise_positions(installation, filling.first)
    with serve(installation) as server:
        bulk_seed.post_seed(server, token, filling.seed)
    installation.manage("update_search_index")
    bulk_seed.copy_seed(installation, filling)
    sys.stderr.write(f"{installation.vendor}: {effects:,} effects filled\n")
    with serve(installation) as server, Reviewers(installation, RULES) as people:
        requests = pending + pending // REFUSED
        post_history(
            server, token, HISTORY * pending, sessions=-(-requests // gates.SESSION_EFFECTS)
        )
        benchmark = gates.GateBenchmark(report, server, people, token)
        benchmark.open_gates(requests, make_call)
        people.do("deny_many", [gate.id for gate in benchmark.take_gates(pending // REFUSED)])
        installation.manage("update_name_index")
        search.wait_until_quiet(server, database=False)
        benchmark.measure_inbox(INBOX_READS)
        benchmark.measure_cards(reads)


def post_history(server: Server, token: str, effects: int, *, sessions: int) -> None:
    """Post earlier calls in the sessions of the requests, some of which run tests."""
    writer, batches = CallWriter("gates", sessions=sessions), []
    while writer.effects < effects:
        batches += writer.mixed(1)
    clients.run_together([clients.post_batches(server.port, token, batches)])
