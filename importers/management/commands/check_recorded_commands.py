"""`manage.py check_recorded_commands FOLDER`: measure how recorded shell commands are understood.

It reads recorded sessions, maps each shell command with the default mapping, and prints the share
that is parsed, the share whose every part is mapped, and the processor time. It needs no database.
"""

import json
import random
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand

from importers import READERS
from importers.management.commands.check_recorded_plans import DATA_SETS
from shell.command_effects import RUN_TOOL
from shell.map_command import map_command
from shell.mapping import load_default_mapping

SHELL_TOOLS: Final = frozenset({"bash", "shell", "run", "execute_bash", "run_shell_command"})


@dataclass
class _Counts:
    """Commands of one data set; `seconds` of processor time for each."""

    parsed: int = 0
    mapped: int = 0
    seconds: list[float] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    unknown_programs: Counter[str] = field(default_factory=Counter)

    def add(self, other: "_Counts") -> None:
        self.parsed += other.parsed
        self.mapped += other.mapped
        self.seconds += other.seconds
        self.tools += other.tools
        self.unknown_programs += other.unknown_programs


class Command(BaseCommand):
    """Map all recorded shell commands and print shares and times."""

    help = "Print how many recorded shell commands are parsed and mapped, and how long that takes."
    requires_system_checks: list[str] = []  # they check the code, and double the start-up time

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "folder", metavar="FOLDER", type=Path, help="has a folder for each data set"
        )
        parser.add_argument(
            "--sample", type=int, default=0, help="print this many commands with their parts"
        )
        parser.add_argument("--seed", type=int, default=14, help="of the sample; default 14")

    def handle(
        self, *_args: Any, folder: Path, sample: int, seed: int, **_options: Any
    ) -> str | None:
        if not folder.is_dir():
            return f"{folder} does not exist; nothing is measured."
        commands = list(iterate_recorded_commands(folder))
        if sample:
            chosen = random.Random(seed).sample(  # noqa: S311  # not for secrets
                commands, min(sample, len(commands))
            )
            return "\n".join(_format_mapped(command) for _, command in chosen)
        return _format_counts(_measure(commands))


def iterate_recorded_commands(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (data set, command) of every recorded call of a shell."""
    for data_set, format_name in DATA_SETS.items():
        for file in sorted((folder / data_set).glob("*.jsonl.gz")):
            for trajectory in READERS[format_name](file):
                for call in trajectory.calls:
                    if call.tool.lower() in SHELL_TOOLS and isinstance(call.arguments, dict):
                        command = call.arguments.get("command")
                        if isinstance(command, str):
                            yield data_set, command


def _measure(commands: list[tuple[str, str]]) -> dict[str, _Counts]:
    mapping = load_default_mapping()
    map_command("true", mapping=mapping)  # loads the grammar
    counts: dict[str, _Counts] = {}
    for data_set, command in commands:
        tally = counts.setdefault(data_set, _Counts())
        before = time.process_time()
        mapped = map_command(command, mapping=mapping)
        tally.seconds.append(time.process_time() - before)
        tally.parsed += mapped.parsed
        unknown = [part for part in mapped.parts if part.tool == RUN_TOOL]
        tally.mapped += mapped.parsed and not unknown
        tally.tools[mapped.tool] += 1
        tally.unknown_programs.update(str(part.arguments.get("program")) for part in unknown)
    return counts


def _format_counts(counts: dict[str, _Counts]) -> str:
    total = _Counts()
    for tally in counts.values():
        total.add(tally)
    lines = [
        f"{'data set':<20} {'commands':>8} {'parsed':>7} {'mapped':>7} {'p50 ms':>7} {'p95 ms':>7}"
        f" {'max ms':>7}"
    ]
    lines += [_format_tally(name, tally) for name, tally in (*counts.items(), ("all", total))]
    for title, listed in (
        ("Tools", total.tools),
        ("Programs that no usage line maps", total.unknown_programs),
    ):
        lines.append(f"{title}:")
        lines += [f"  {number:>6,} {json.dumps(name)}" for name, number in listed.most_common(20)]
    return "\n".join(lines)


def _format_tally(name: str, tally: _Counts) -> str:
    seconds = sorted(tally.seconds) or [0.0]
    count = max(len(tally.seconds), 1)
    milliseconds = [
        1000 * seconds[min(int(len(seconds) * share), len(seconds) - 1)] for share in (0.5, 0.95, 1)
    ]
    return (
        f"{name:<20} {len(tally.seconds):>8,} {100 * tally.parsed / count:>6.1f}%"
        f" {100 * tally.mapped / count:>6.1f}% " + " ".join(f"{ms:>7.2f}" for ms in milliseconds)
    )


def _format_mapped(command: str) -> str:
    mapped = map_command(command, mapping=load_default_mapping())
    parts = [
        f"  {part.tool} {part.effect} {json.dumps(part.arguments)} ({part.why})"
        for part in mapped.parts
    ]
    return "\n".join([f"{json.dumps(command)} -> {mapped.tool}", *parts])
