"""One request, under one key, until it is answered."""

import json
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from gatebook_client.errors import LedgerAway, Refused
from gatebook_client.keys import new_key
from gatebook_client.values import Json

TRY_AGAIN = frozenset({500, 502, 503, 504})
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 2.0
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Answer:
    """A 2xx: its status, its object, how soon to ask again, and the server's time where it says one."""

    status: int
    body: Json
    retry_after_s: float = 0.0
    now_us: int | None = None


class Wire:
    """Speaks with the Gatebook at `url`. Safe for threads; a fork makes connections of its own."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = 15.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not url or not token:
            missing = "an address (url, or GATEBOOK_URL)" if not url else "a token (token, or GATEBOOK_TOKEN)"
            raise ValueError(f"Gatebook needs {missing}.")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"The address of a Gatebook begins with http:// or https://; {url} does not.")
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        self.sleep = sleep
        self._token = token
        self._transport = transport
        self._http: httpx.Client | None = None
        self._pid = 0

    def get(self, path: str, *, timeout_s: float = TIMEOUT_S, **asked: Any) -> Answer:
        """Read; `asked` are the parameters, of which the empty ones are left out. Raises LedgerAway, Refused."""
        asked = {name: value for name, value in asked.items() if value not in ("", None)}
        _written(asked)
        return self._ask("GET", path, timeout_s=timeout_s, params=asked)

    def post(
        self, path: str, body: Json, *, key: str = "", patience_s: float | None = None, keyless: bool = False
    ) -> Answer:
        """Give one command, under `key` or a new one. Raises LedgerAway, Refused."""
        headers = {} if keyless else {"Idempotency-Key": key or new_key()}
        headers["Content-Type"] = "application/json"
        return self._ask("POST", path, headers=headers, content=_written(body), patience_s=patience_s)

    def put(self, path: str, content: bytes) -> Answer:
        """Store bytes. Raises LedgerAway, Refused."""
        headers = {"Content-Type": "application/octet-stream"}
        return self._ask("PUT", path, headers=headers, content=content, timeout_s=60)

    def close(self) -> None:
        """Give the connections back."""
        if self._http is not None and self._pid == os.getpid():
            self._http.close()

    def _ask(
        self, method: str, path: str, *, timeout_s: float = TIMEOUT_S, patience_s: float | None = None, **what: Any
    ) -> Answer:
        patience_s = self.patience_s if patience_s is None else patience_s
        until, wait_s = 0.0, FIRST_WAIT_S
        while True:
            try:
                response = self._client().request(method, path, timeout=timeout_s, **what)
            except httpx.TransportError as fault:
                reason, asked_s = str(fault) or type(fault).__name__, 0.0
            else:
                if response.status_code not in TRY_AGAIN:
                    return _read(response)
                reason, asked_s = f"HTTP {response.status_code}", _asked_to_wait(response)
            until = until or time.monotonic() + patience_s  # from the first failure: a wait may have been long
            if time.monotonic() + max(wait_s, asked_s) > until:
                raise LedgerAway(f"No Gatebook answers at {self.url} ({reason}).")
            self.sleep(max(wait_s, asked_s))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _client(self) -> httpx.Client:
        if self._http is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._http = httpx.Client(
                base_url=f"{self.url}/api/v1",
                headers={"Authorization": f"Bearer {self._token}"},
                transport=self._transport,
                # To read all certificates of the machine takes longer than all else, and is for nothing without TLS.
                verify=True if self.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                trust_env=False,
            )
        return self._http


def _written(body: Json) -> bytes:
    """A body as UTF-8. Raises ValueError for NaN, and Refused, as Gatebook would, for half of a surrogate pair."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as fault:
        around = ascii(text[max(fault.start - 20, 0) : fault.start + 1])
        detail = f"Text holds half of a surrogate pair, after {around}. Send Unicode, or text in which it is replaced."
        raise Refused(422, {"code": "lone_surrogate", "detail": detail}) from None


def _read(response: httpx.Response) -> Answer:
    try:
        told = response.json()
    except ValueError:
        told = None
    if not isinstance(told, dict):
        problem = {"code": "not_gatebook", "detail": "The answer is not Gatebook's; check the address"}
        raise Refused(response.status_code, problem)
    if not response.is_success:
        raise Refused(response.status_code, told | {"retry_after_s": _asked_to_wait(response)})
    return Answer(response.status_code, told, _asked_to_wait(response), _server_time(response))


def _asked_to_wait(response: httpx.Response) -> float:
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def _server_time(response: httpx.Response) -> int | None:
    """The second in which the server answered, in microseconds; never later than the answer."""
    try:
        return int(parsedate_to_datetime(response.headers["Date"]).timestamp()) * 1_000_000
    except (KeyError, ValueError, TypeError):
        return None
