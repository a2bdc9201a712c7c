"""What a process and all that it started have used, read from /proc (Linux): processor time and
resident memory."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


def _stat(process: int) -> tuple[int, float, int] | None:
    """Return (parent, processor seconds, resident bytes) of a process, None when it is gone.

    The seconds include those of its children that have ended and were waited for, so nothing is
    lost when one ends.
    """
    try:
        text = (_PROC / str(process) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE


def tree(*roots: int) -> dict[int, tuple[float, int]]:
    """Return (processor seconds, resident bytes) of each of `roots` and of every process below
    them."""
    stats = {
        int(path.name): _stat(int(path.name)) for path in _PROC.iterdir() if path.name.isdigit()
    }
    children: dict[int, list[int]] = {}
    for process, stat in stats.items():
        if stat is not None:
            children.setdefault(stat[0], []).append(process)
    found: dict[int, tuple[float, int]] = {}
    pending = list(roots)
    while pending:
        process = pending.pop()
        stat = stats.get(process)
        if stat is not None and process not in found:
            found[process] = stat[1:]
            pending += children.get(process, [])
    return found


def cpu_s(roots: Iterable[int]) -> float:
    """Return the processor seconds that the trees of `roots` have used so far, in user and in
    system mode."""
    roots = list(roots)
    found = tree(*roots)
    # A process that ends while we look is counted neither for itself nor yet for its parent: we
    # look again.
    for _ in range(20):
        before, found = found, tree(*roots)
        if before.keys() == found.keys():
            break
    return sum(seconds for seconds, _ in found.values())


def resident_bytes(roots: Iterable[int]) -> int:
    """Return the resident memory of the trees of `roots`; pages that processes share are counted in
    each of them."""
    return sum(size for _, size in tree(*roots).values())


def command_line(process: int) -> list[str]:
    """Return the arguments a process was started with; nothing when it is gone."""
    try:
        return (_PROC / str(process) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
