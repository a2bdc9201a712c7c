"""The resume answer of a session with a hundred effects, and of one with very many.

Both sessions have the same number of effects whose outcome is unknown; they differ in finished
effects.
"""

import json
import sys
import time
from typing import Final

import psycopg

from evaluation.bench import clients
from evaluation.bench.installation import Installation, serve
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import Writer

SMALL: Final = 100  # effects
IN_DOUBT: Final = 10
RATIO_BAR: Final = 2.0
SIZE_BAR_KB: Final = 32.768
READS: Final = 100  # a round


def measure(report: Report, installation: Installation, *, rounds: int, effects: int) -> None:
    """Read the resume answers of sessions with SMALL and with `effects` effects, in turns."""
    token = installation.issue_token("resuming")
    with serve(installation) as server:
        paths = {}
        for size in (SMALL, effects):
            started = time.monotonic()
            batches = Writer(f"resumed-{size}", sessions=1).report_session(size, IN_DOUBT)
            clients.run_together([clients.post_batches(server.port, token, batches)])
            api = clients.Api(server.port, token)  # the server closes idle connections
            (newest,) = json.loads(
                api.get(f"/api/v1/effects?session=bench-resumed-{size}-0&limit=1")
            )["items"]
            paths[size] = f"/api/v1/sessions/{newest['session']}/resume"
            answer = json.loads(api.get(paths[size]))
            if answer["safe"] or answer["crash_recovery"]["open_effects_in_all"] != IN_DOUBT:
                raise RuntimeError(f"{IN_DOUBT} effects are in doubt, but the answer differs")
            sys.stderr.write(
                f"{installation.vendor}: {size:,} effects posted in {time.monotonic() - started:.0f} "
                "s\n"
            )
        _analyze(installation)
        seen: dict[int, list[list[float]]] = {size: [] for size in paths}
        for number in range(rounds):
            sys.stderr.write(f"resuming, round {number + 1} of {rounds}\n")
            spent: dict[int, list[float]] = {size: [] for size in paths}
            for _ in range(READS):
                for size, path in paths.items():
                    started = time.perf_counter()
                    api.get(path)
                    spent[size].append(1000 * (time.perf_counter() - started))
            for size, values in spent.items():
                seen[size].append(values)
        _add_figures(
            report,
            installation.vendor,
            seen,
            {size: len(api.get(path)) for size, path in paths.items()},
        )
        api.close()


def _analyze(installation: Installation) -> None:
    """Let PostgreSQL analyze its tables now; until then it sorts all rows of a session per read."""
    if installation.cluster is not None:
        with psycopg.connect(installation.url, autocommit=True) as connection:
            connection.execute("ANALYZE")


def _add_figures(
    report: Report, vendor: str, seen: dict[int, list[list[float]]], lengths: dict[int, int]
) -> None:
    small, large = seen
    for size, rounds in seen.items():
        for share in (0.5, 0.95):
            values = [percentile(latencies, share) for latencies in rounds]
            report.add(vendor, f"resume answer, {size:,} effects: p{share * 100:.0f}", "ms", values)
        report.add(
            vendor,
            f"resume answer, {size:,} effects: size",
            "KB",
            [lengths[size] / 1000],
            bar=SIZE_BAR_KB,
        )
    pairs = zip(seen[large], seen[small], strict=True)
    ratios = [percentile(latencies, 0.95) / percentile(other, 0.95) for latencies, other in pairs]
    report.add(
        vendor, f"resume answer: p95 of {large:,} against {small:,}", "×", ratios, bar=RATIO_BAR
    )
