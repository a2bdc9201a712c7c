"""The process between `gatebook exec` and its command: ends that when `gatebook` is gone, or when its time is over.

Run as a file by command.py, before the command and as its parent. `gatebook` holds the other end of the pipe `alive`;
when that closes, whatever closed it, nothing of the command may go on: a process that nobody reports on would otherwise
outlive the time after which the next one may do the same again. Only what a command leaves running when it has ended,
and `gatebook` has heard so, is left.

On Linux the watcher adopts whatever the command starts and leaves behind, in groups and sessions of their own too, and
the command is ended by the kernel if the watcher is killed. Elsewhere the command gets a process group of its own, and
what stays in that group is ended; at a terminal it stays in the terminal's group, and it alone is ended.
"""

import ctypes
import errno
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
ADOPTS = sys.platform == "linux"
HEARD = b"."  # what `gatebook` writes when it has heard how the command ended
LONGEST_SLEEP_S = 1.0  # a machine that was asleep may wake after the end


def now_s() -> float:
    """Seconds of a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def main() -> None:
    """Run the command in `sys.argv`: pipe `alive`, pipe `said`, seconds it may take (`-` for any), group, words."""
    alive, said, lasts, group, *words = sys.argv[1:]
    until = None if lasts == "-" else now_s() + float(lasts)
    own_group = not ADOPTS and not _has_terminal()

    def tell(word: str) -> None:
        with suppress(OSError):  # nobody is there to read it
            os.write(int(said), f"{word}\n".encode())

    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    prctl = ctypes.CDLL(None, use_errno=True).prctl if ADOPTS else None
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    watcher = os.getpid()

    def dies_with_us() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != watcher:  # gone before that was asked for
                os._exit(127)

    if _is_over(int(alive), until):
        tell(f"failed {errno.ETIMEDOUT}")
        return
    try:
        child = subprocess.Popen(words, preexec_fn=dies_with_us, process_group=0 if own_group else int(group))
    except OSError as fault:
        tell(f"failed {fault.errno or errno.EIO}")
        return
    for number in FORWARDED:
        signal.signal(number, lambda number, _frame: child.send_signal(number))
    tell("begun")
    while child.poll() is None:
        if _is_over(int(alive), until):
            _end(child, own_group)
            tell("cut off")
            return
        sleep_s = LONGEST_SLEEP_S if until is None else min(LONGEST_SLEEP_S, max(until - now_s(), 0.0))
        select.select([int(alive), woken], [], [], sleep_s)
        with suppress(BlockingIOError):
            os.read(woken, 4096)
        _bury(child)
    tell(f"ended {child.returncode}")
    if os.read(int(alive), 1) != HEARD:  # what killed the command killed `gatebook` too
        _end(child, own_group)


def _is_over(alive: int, until: float | None) -> bool:
    """Whether `gatebook` is gone, or the time of the command is over."""
    gone = bool(select.select([alive], [], [], 0)[0])  # nothing is written by then: readable is closed
    return gone or (until is not None and now_s() >= until)


def _bury(child: "subprocess.Popen[bytes]") -> None:
    """Take leave of adopted processes that have ended; the command itself is left to `poll`."""
    while ADOPTS and child.returncode is None:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None or ended.si_pid == child.pid:
            return
        os.waitpid(ended.si_pid, 0)


def _end(child: "subprocess.Popen[bytes]", own_group: bool) -> None:
    """Kill the command and what it started."""
    if not ADOPTS:
        if own_group:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.wait()
        return
    while True:  # whoever is orphaned by this becomes our child, until there are none
        ours = [pid for pid in _children() if _kill(pid)]
        if not ours:
            return
        for pid in ours:
            if pid == child.pid:
                child.wait()
            else:
                os.waitpid(pid, 0)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:  # it made itself another user's: nothing can be done about it
        return False
    return True


def _children() -> list[int]:
    """The processes whose parent we are, the dead among them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone meanwhile
            if int((process / "stat").read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(process.name))
    return found


def _has_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgid(os.getppid())
    except OSError:
        return False


if __name__ == "__main__":
    main()
