"""Reports of hooks that a program sends in their order, and keeps while Gatebook is away."""

import json
import queue
import threading
import time
from collections.abc import Callable

from gatebook_client import hook_spool
from gatebook_client.call_permissions import TIMEOUT_S, make_delivery
from gatebook_client.git_facts import read_git_facts
from gatebook_client.plain_http import RequestFailed, parse_object, send_request
from gatebook_client.types import Json


class HookReports:
    """Sends reports in a thread of its own. What Gatebook does not take is sent later."""

    def __init__(
        self,
        agent: str,
        url: str,
        token: str,
        connection: str = "",
        *,
        program: str = "",
        on_answer: Callable[[Json, Json], object] = lambda _report, _answer: None,
    ) -> None:
        # `on_answer` gets each report and the answer to it.
        self._named = {"program": program} if program else {}
        self._path = f"/api/v1/hooks/{agent}"
        self._url, self._token = url, token
        self._spool = hook_spool.get_spool_folder(url, connection)
        self._on_answer = on_answer
        self._reports: queue.Queue[Json] = queue.Queue()
        threading.Thread(target=self._run, name="reports", daemon=True).start()

    def add(self, report: Json) -> None:
        """Send a report after those before it."""
        facts = read_git_facts(str(report.get("cwd") or "."))
        self._reports.put(report | {"gatebook": facts | self._named | make_delivery()})

    def wait(self, seconds: float) -> bool:
        """Wait until every report was sent or kept; return whether that is so."""
        until = time.monotonic() + seconds
        while self._reports.unfinished_tasks:
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True

    def _run(self) -> None:
        while True:
            report = self._reports.get()
            try:
                self._deliver(report)
            except Exception as error:  # the next report is sent all the same
                hook_spool.print_warning(f"a report failed: {error!r}")
            finally:
                self._reports.task_done()

    def _deliver(self, report: Json) -> None:
        body = json.dumps(report).encode()
        try:
            hook_spool.deliver_reports(self._spool, lambda path, kept: self._send(path, kept)[0])
            status, answer = self._send(self._path, body)
        except (RequestFailed, OSError, ValueError) as error:
            self._keep(body, str(error))
            return
        if status >= 500 or status in (401, 403, 408, 429):
            self._keep(body, f"HTTP {status}")
            return
        self._on_answer(report, parse_object(answer))

    def _send(self, path: str, body: bytes) -> tuple[int, bytes]:
        return send_request(
            "POST", self._url, path, token=self._token, body=body, timeout_s=TIMEOUT_S
        )

    def _keep(self, body: bytes, reason: str) -> None:
        try:
            hook_spool.store_report(self._spool, self._path, body)
        except OSError as error:
            hook_spool.print_warning(f"a report could not be kept: {error}")
        else:
            hook_spool.print_warning(f"a report is kept and sent later: {reason}")
