"""CPU time and resident memory of process trees, from /proc (Linux)."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


def _stat(process: int) -> tuple[int, float, int] | None:
    """Return (parent, CPU seconds, resident bytes) of a process, or None if it has ended.

    The seconds include those of its ended children that were waited for.
    """
    try:
        text = (_PROC / str(process) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE


def tree(*roots: int) -> dict[int, tuple[float, int]]:
    """Return (CPU seconds, resident bytes) of `roots` and their descendants."""
    stats = {
        int(path.name): _stat(int(path.name)) for path in _PROC.iterdir() if path.name.isdigit()
    }
    children: dict[int, list[int]] = {}
    for process, stat in stats.items():
        if stat is not None:
            children.setdefault(stat[0], []).append(process)
    used: dict[int, tuple[float, int]] = {}
    pending = list(roots)
    while pending:
        process = pending.pop()
        stat = stats.get(process)
        if stat is not None and process not in used:
            used[process] = stat[1:]
            pending += children.get(process, [])
    return used


def cpu_s(roots: Iterable[int]) -> float:
    """Return the CPU seconds (user and system) of the trees of `roots` so far."""
    roots = list(roots)
    used = tree(*roots)
    # A process that ends during the scan is missing from its own and its parent's figures: scan again.
    for _ in range(20):
        before, used = used, tree(*roots)
        if before.keys() == used.keys():
            break
    return sum(seconds for seconds, _ in used.values())


def resident_bytes(roots: Iterable[int]) -> int:
    """Return the resident memory of the trees of `roots`; shared pages count in each process."""
    return sum(size for _, size in tree(*roots).values())


def command_line(process: int) -> list[str]:
    """Return the arguments of a process; an empty list if it has ended."""
    try:
        return (_PROC / str(process) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
