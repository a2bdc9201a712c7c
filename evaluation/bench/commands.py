"""Single commands (plan, dispatch, acknowledge) of sixteen concurrent agents."""

import sys
from typing import Final

from evaluation.bench import clients
from evaluation.bench.installation import Server
from evaluation.bench.report import Report, percentile

CLIENTS: Final = 16
CPU_BAR: Final = 1.4  # CPU-s per 1,000 commands
P99_BAR: Final = 50.0  # ms


def measure(report: Report, server: Server, *, rounds: int, effects: int) -> None:
    """Measure the command lane; each agent takes `effects` effects from plan to answer in a round."""
    vendor = server.installation.vendor
    seen: dict[str, list[float]] = {}
    token = server.installation.issue_token("bench")
    clients.run_together([clients.make_life_cycles(server.port, token, "warm", CLIENTS, 10)])
    for number in range(rounds):
        sys.stderr.write(f"{vendor}: single commands, round {number + 1} of {rounds}\n")
        before, database = server.cpu_s(), server.database_cpu_s()
        spent = clients.run_together(
            [clients.make_life_cycles(server.port, token, f"r{number}", CLIENTS, effects)]
        )
        used = server.cpu_s() - before
        commands = len(spent.all)
        seen.setdefault("cpu", []).append(1000 * used / commands)
        seen.setdefault("database", []).append(
            1000 * (server.database_cpu_s() - database) / commands
        )
        seen.setdefault("rate", []).append(commands / spent.wall_s)
        for share in (50, 99):
            seen.setdefault(f"p{share}", []).append(1000 * percentile(spent.all, share / 100))
        for command, values in spent.latencies.items():
            seen.setdefault(f"{command} p50", []).append(1000 * percentile(values, 0.5))
    report.add(vendor, "command: CPU", "CPU-s per 1,000", seen["cpu"], bar=CPU_BAR)
    if vendor == "postgresql":
        report.add(
            vendor, "command: CPU of the database alone", "CPU-s per 1,000", seen["database"]
        )
    report.add(vendor, "command: rate", "requests/s", seen["rate"])
    report.add(vendor, "command: p50", "ms", seen["p50"])
    report.add(vendor, "command: p99", "ms", seen["p99"], bar=P99_BAR)
    for command in clients.COMMANDS:
        report.add(vendor, f"command: {command} p50", "ms", seen[f"{command} p50"])
