"""The process between `gatebook exec` and its command; ends the command with `gatebook`.

It also ends the command when its time is over. exec_command.py runs this file as the parent of the
command. `gatebook` holds the other end of the pipe `alive`. When that closes for any reason, no
process of the command may continue: nobody would report on it, and it could outlive the time after
which the next process may repeat the effect. Only processes that a command leaves running after
its end, which `gatebook` has received, are not touched.

On Linux the watcher adopts all processes that the command starts and leaves behind, in groups and
sessions of their own too, and the kernel kills the command if the watcher is killed. On other
systems the command gets a process group of its own, and what stays in that group is killed. At a
terminal it stays in the terminal's group, and the command alone is killed.
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
ADOPTS_ORPHANS = sys.platform == "linux"
RECEIVED = b"."  # written by `gatebook` when it has received the end of the command
LONGEST_SLEEP_S = 1.0  # a machine may sleep past the deadline


def now_s() -> float:
    """Return seconds of a clock that runs while the machine sleeps, if there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def main() -> None:
    """Run the command in `sys.argv`.

    Arguments: the pipe `alive`, the pipe for events, the timeout in seconds (`-` for none), the
    process group, and the command with its arguments.
    """
    alive, events, timeout, group, *command = sys.argv[1:]
    until = None if timeout == "-" else now_s() + float(timeout)
    own_group = not ADOPTS_ORPHANS and not _has_terminal()

    def send_event(event: str) -> None:
        with suppress(OSError):  # the reader has ended
            os.write(int(events), f"{event}\n".encode())

    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    prctl = ctypes.CDLL(None, use_errno=True).prctl if ADOPTS_ORPHANS else None
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    watcher = os.getpid()

    def die_with_watcher() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != watcher:  # the watcher ended before prctl
                os._exit(127)

    if _is_over(int(alive), until):
        send_event(f"failed {errno.ETIMEDOUT}")
        return
    try:
        child = subprocess.Popen(
            command, preexec_fn=die_with_watcher, process_group=0 if own_group else int(group)
        )
    except OSError as error:
        send_event(f"failed {error.errno or errno.EIO}")
        return
    for number in FORWARDED:
        signal.signal(number, lambda number, _frame: child.send_signal(number))
    send_event("begun")
    while child.poll() is None:
        if _is_over(int(alive), until):
            _end(child, own_group)
            send_event("cut off")
            return
        sleep_s = (
            LONGEST_SLEEP_S if until is None else min(LONGEST_SLEEP_S, max(until - now_s(), 0.0))
        )
        select.select([int(alive), wake_read], [], [], sleep_s)
        with suppress(BlockingIOError):
            os.read(wake_read, 4096)
        _reap_adopted(child)
    send_event(f"ended {child.returncode}")
    if os.read(int(alive), 1) != RECEIVED:  # `gatebook` was killed together with the command
        _end(child, own_group)


def _is_over(alive: int, until: float | None) -> bool:
    """Return whether `gatebook` has ended or the time of the command is over."""
    # Nothing is written to the pipe before the end, so readable means closed.
    closed = bool(select.select([alive], [], [], 0)[0])
    return closed or (until is not None and now_s() >= until)


def _reap_adopted(child: "subprocess.Popen[bytes]") -> None:
    """Reap adopted processes that have ended; `poll` reaps the command itself."""
    while ADOPTS_ORPHANS and child.returncode is None:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None or ended.si_pid == child.pid:
            return
        os.waitpid(ended.si_pid, 0)


def _end(child: "subprocess.Popen[bytes]", own_group: bool) -> None:
    """Kill the command and the processes that it started."""
    if not ADOPTS_ORPHANS:
        if own_group:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.wait()
        return
    while True:  # killing orphans more processes, which become children
        pids = [pid for pid in _children() if _kill(pid)]
        if not pids:
            return
        for pid in pids:
            if pid == child.pid:
                child.wait()
            else:
                os.waitpid(pid, 0)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:  # it runs as another user
        return False
    return True


def _children() -> list[int]:
    """Return the ids of all child processes of this one, zombies included."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if int((process / "stat").read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                pids.append(int(process.name))
    return pids


def _has_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgid(os.getppid())
    except OSError:
        return False


if __name__ == "__main__":
    main()
