"""Run collected tests in copies of this process: `pytest --workers 5`.

A worker of pytest-xdist imports Django and collects all tests itself, which takes ten seconds of a
processor. A copy has them already and shares their memory.
"""

import atexit
import os
import pickle
import traceback
import warnings
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

# Seconds between two checks whether a worker has ended while another process holds its pipe open.
CHECK_EVERY_S = 1.0
# The tests with the same name here run in one worker; without one, those of a file do.
GROUP = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of workers."""
    parser.addoption(
        "--workers", type=int, default=0, help="run the tests in this many copies of this process"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers, if there are to be some."""
    count: int = session.config.getoption("workers")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(session.items):
        groups.setdefault(item.stash.get(GROUP, str(item.path)), []).append(number)
    ForkedWorkers(session, list(groups.values()), count).run()
    return True


@dataclass
class Worker:
    """A copy of this process and the numbers of the tests that it has and has not finished."""

    pid: int
    connection: "Connection[Any, Any]"
    unfinished: deque[int] = field(default_factory=deque)
    # Its last message was that it ends.
    is_done: bool = False


class ForkedWorkers:
    """Workers that run groups of tests, each group in one of them."""

    def __init__(self, session: pytest.Session, groups: list[list[int]], count: int) -> None:
        """Prepare to run `groups`, which hold positions in `session.items`, in `count` workers."""
        self._session = session
        self._waiting = deque(groups)
        self._count = count
        self._started = 0
        self._workers: list[Worker] = []
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # of all workers

    def run(self) -> None:
        """Run all groups and report their tests to this process's plugins.

        A test has failed if its worker ends during it; another worker runs the rest of the group.
        """
        try:
            while True:
                while self._waiting and len(self._workers) < self._count:
                    self._start_worker()
                if not self._workers:
                    return
                wait([worker.connection for worker in self._workers], CHECK_EVERY_S)
                for worker in list(self._workers):
                    self._read_messages(worker)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            for worker in self._workers:  # at its next message each tears its fixtures down
                worker.connection.close()
            for worker in self._workers:
                os.waitpid(worker.pid, 0)

    def _start_worker(self) -> None:
        ours, theirs = Pipe()
        number, self._started = self._started, self._started + 1
        pid = os.fork()
        if pid:
            theirs.close()
            self._workers.append(Worker(pid, ours))
            return
        code = 1
        try:
            for connection in (ours, *(worker.connection for worker in self._workers)):
                connection.close()
            _Copy(self._session, theirs, number).run()
            code = 0
        except (BrokenPipeError, KeyboardInterrupt):  # the parent runs no more tests
            pass
        except BaseException:  # this process must not continue as its parent does
            traceback.print_exc()
        finally:
            os._exit(code)

    def _read_messages(self, worker: Worker) -> None:
        # First, because a worker sends messages until it ends.
        has_ended = os.waitpid(worker.pid, os.WNOHANG) != (0, 0)
        try:
            while worker.connection.poll():
                self._handle_message(worker, *worker.connection.recv())
                if not has_ended:
                    return
        except (EOFError, ConnectionResetError):
            if not has_ended:
                has_ended = os.waitpid(worker.pid, 0) != (0, 0)
        if has_ended:
            self._remove_worker(worker)

    def _handle_message(self, worker: Worker, kind: str, *details: Any) -> None:
        hook = self._session.config.hook
        match kind:
            case "next":
                group = self._waiting.popleft() if self._waiting else []
                worker.unfinished += group
                worker.connection.send(group)
            case "start":
                hook.pytest_runtest_logstart(nodeid=details[0], location=details[1])
            case "report":
                report = hook.pytest_report_from_serializable(
                    config=self._session.config, data=details[0]
                )
                hook.pytest_runtest_logreport(report=report)
            case "finish":
                worker.unfinished.popleft()
                hook.pytest_runtest_logfinish(nodeid=details[0], location=details[1])
            case "warning":
                hook.pytest_warning_recorded.call_historic(kwargs=details[0])
            case "done":
                worker.is_done = True

    def _remove_worker(self, worker: Worker) -> None:
        """Remove a worker that has ended; its test has failed if it did not end by itself."""
        self._workers.remove(worker)
        worker.connection.close()
        if worker.is_done:
            return
        if not worker.unfinished:
            raise pytest.UsageError("A worker ended outside a test; its output says why.")
        item = self._session.items[worker.unfinished.popleft()]
        self._session.config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(
                item.nodeid,
                item.location,
                {},
                "failed",
                "the worker ended during this test",
                "call",
            )
        )
        if worker.unfinished:
            self._waiting.appendleft(list(worker.unfinished))


class _Copy:
    """What runs in a worker. It is a plugin that sends what pytest reports to the parent."""

    def __init__(
        self, session: pytest.Session, connection: "Connection[Any, Any]", number: int
    ) -> None:
        self._session = session
        self._connection = connection
        self._name = f"worker{number}"
        self._is_registered = False

    def run(self) -> None:
        """Run groups of tests until the parent has no more."""
        config = self._session.config
        config.workerinput = {"workerid": self._name}  # type: ignore[attr-defined]  # names the database
        folders = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = folders.mktemp(self._name, numbered=False)
        # Its own files for captured output: the parent's would be shared by all workers.
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(self, self._name)  # repeats the parent's warnings
        self._is_registered = True
        try:
            group = self._read_group()
            while group:
                for number, following in pairwise(group):
                    self._run_test(number, following)
                # The next group decides which fixtures the last test tears down.
                last, group = group[-1], self._read_group()
                self._run_test(last, group[0] if group else None)
        finally:
            self._session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
        self._connection.send(("done",))

    def _read_group(self) -> list[int]:
        self._connection.send(("next",))
        group: list[int] = self._connection.recv()
        return group

    def _run_test(self, number: int, following: int | None) -> None:
        items = self._session.items
        self._session.config.hook.pytest_runtest_protocol(
            item=items[number], nextitem=None if following is None else items[following]
        )

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("start", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._connection.send(("report", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("finish", nodeid, location))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        if not self._is_registered:
            return
        try:
            pickle.dumps(warning_message)
        except Exception:
            warning_message.message = UserWarning(str(warning_message.message))
            warning_message.category, warning_message.source = UserWarning, None
        recorded = {"when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", {"warning_message": warning_message, **recorded}))
