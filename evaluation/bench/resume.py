"""What the next worker waits for when it asks how a session stands: after a hundred effects, and
after very many.

Both sessions hold as many effects of which nobody knows whether they happened; only what is over
differs.
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
    """Ask for the resume answer by turns, READS times a round, in a session of SMALL effects and
    one of `effects`."""
    token = installation.token("resuming")
    with serve(installation) as server:
        paths = {}
        for size in (SMALL, effects):
            started = time.monotonic()
            batches = Writer(f"resumed-{size}", sessions=1).ended(size, IN_DOUBT)
            clients.together([clients.post_batches(server.port, token, batches)])
            api = clients.Api(
                server.port, token
            )  # the server hangs up on whoever was silent for long
            (newest,) = json.loads(
                api.get(f"/api/v1/effects?session=bench-resumed-{size}-0&limit=1")
            )["items"]
            paths[size] = f"/api/v1/sessions/{newest['session']}/resume"
            told = json.loads(api.get(paths[size]))
            if told["safe"] or told["crash_recovery"]["open_effects_in_all"] != IN_DOUBT:
                raise RuntimeError(
                    f"{IN_DOUBT} effects are in doubt, and the answer says otherwise"
                )
            sys.stderr.write(
                f"{installation.vendor}: {size:,} effects told in {time.monotonic() - started:.0f} "
                "s\n"
            )
        _know(installation)
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
        _tell(
            report,
            installation.vendor,
            seen,
            {size: len(api.get(path)) for size, path in paths.items()},
        )
        api.close()


def _know(installation: Installation) -> None:
    """Let PostgreSQL count its rows, as it soon does by itself; until then it sorts a whole session
    at each look."""
    if installation.cluster is not None:
        with psycopg.connect(installation.url, autocommit=True) as connection:
            connection.execute("ANALYZE")


def _tell(
    report: Report, vendor: str, seen: dict[int, list[list[float]]], lengths: dict[int, int]
) -> None:
    small, large = seen
    for size, rounds in seen.items():
        for share in (0.5, 0.95):
            values = [percentile(one, share) for one in rounds]
            report.add(vendor, f"resume answer, {size:,} effects: p{share * 100:.0f}", "ms", values)
        report.add(
            vendor,
            f"resume answer, {size:,} effects: size",
            "KB",
            [lengths[size] / 1000],
            bar=SIZE_BAR_KB,
        )
    pairs = zip(seen[large], seen[small], strict=True)
    ratios = [percentile(one, 0.95) / percentile(other, 0.95) for one, other in pairs]
    report.add(
        vendor, f"resume answer: p95 of {large:,} against {small:,}", "×", ratios, bar=RATIO_BAR
    )
