"""HTTP requests, each under one idempotency key, retried until answered."""

import json
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from gatebook_client.effect_keys import new_key
from gatebook_client.errors import Refused, ServerUnavailable
from gatebook_client.types import Json

RETRY_STATUSES = frozenset({500, 502, 503, 504})
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 2.0
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Response:
    """A 2xx response: status, JSON object, Retry-After, and the server's time if sent."""

    status: int
    body: Json
    retry_after_s: float = 0.0
    now_us: int | None = None


class HttpClient:
    """Sends requests to the Gatebook at `url`.

    Safe for threads; a forked child opens connections of its own.
    """

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
            missing = (
                "an address (url, or GATEBOOK_URL)"
                if not url
                else "a token (token, or GATEBOOK_TOKEN)"
            )
            raise ValueError(f"Gatebook needs {missing}.")
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"The address {url} is not valid. It must begin with http:// or https://."
            )
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        self.sleep = sleep
        self._token = token
        self._transport = transport
        self._http: httpx.Client | None = None
        self._pid = 0

    def get(self, path: str, *, timeout_s: float = TIMEOUT_S, **params: Any) -> Response:
        """Read; empty parameters are left out. Raises ServerUnavailable, Refused."""
        params = {name: value for name, value in params.items() if value not in ("", None)}
        _encode_body(params)
        return self._ask("GET", path, timeout_s=timeout_s, params=params)

    def post(
        self,
        path: str,
        body: Json,
        *,
        key: str = "",
        patience_s: float | None = None,
        keyless: bool = False,
    ) -> Response:
        """Send one command, under `key` or a new one. Raises ServerUnavailable, Refused."""
        headers = {} if keyless else {"Idempotency-Key": key or new_key()}
        headers["Content-Type"] = "application/json"
        return self._ask(
            "POST", path, headers=headers, content=_encode_body(body), patience_s=patience_s
        )

    def put(self, path: str, content: bytes) -> Response:
        """Store bytes. Raises ServerUnavailable, Refused."""
        headers = {"Content-Type": "application/octet-stream"}
        return self._ask("PUT", path, headers=headers, content=content, timeout_s=60)

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None and self._pid == os.getpid():
            self._http.close()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float | None = None,
        **request: Any,
    ) -> Response:
        patience_s = self.patience_s if patience_s is None else patience_s
        until, wait_s = 0.0, FIRST_RETRY_S
        while True:
            try:
                response = self._client().request(method, path, timeout=timeout_s, **request)
            except httpx.TransportError as error:
                reason, retry_after_s = str(error) or type(error).__name__, 0.0
            else:
                if response.status_code not in RETRY_STATUSES:
                    return _read(response)
                reason, retry_after_s = f"HTTP {response.status_code}", _retry_after_s(response)
            # Counted from the first failure: a long poll may have taken long before.
            until = until or time.monotonic() + patience_s
            if time.monotonic() + max(wait_s, retry_after_s) > until:
                raise ServerUnavailable(f"Gatebook does not answer at {self.url} ({reason}).")
            self.sleep(max(wait_s, retry_after_s))
            wait_s = min(2 * wait_s, MAX_RETRY_S)

    def _client(self) -> httpx.Client:
        if self._http is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._http = httpx.Client(
                base_url=f"{self.url}/api/v1",
                headers={"Authorization": f"Bearer {self._token}"},
                transport=self._transport,
                # Loading the CA certificates is slow, and without TLS they are not needed.
                verify=True
                if self.url.startswith("https:")
                else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                trust_env=False,
            )
        return self._http


def _encode_body(body: Json) -> bytes:
    """Encode a body as UTF-8 JSON.

    Raises ValueError for NaN, and Refused, as Gatebook would, for half of a surrogate pair.
    """
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        around = ascii(text[max(error.start - 20, 0) : error.start + 1])
        detail = (
            f"Text contains half of a surrogate pair, after {around}. "
            "Replace it and send valid Unicode."
        )
        raise Refused(422, {"code": "lone_surrogate", "detail": detail}) from None


def _read(response: httpx.Response) -> Response:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        problem = {
            "code": "not_gatebook",
            "detail": "The server at this address is not a Gatebook. Check the address",
        }
        raise Refused(response.status_code, problem)
    if not response.is_success:
        raise Refused(response.status_code, answer | {"retry_after_s": _retry_after_s(response)})
    return Response(response.status_code, answer, _retry_after_s(response), _server_time(response))


def _retry_after_s(response: httpx.Response) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else 0.0


def _server_time(response: httpx.Response) -> int | None:
    """Return the second of the server's answer in microseconds; never later than it."""
    try:
        return int(parsedate_to_datetime(response.headers["Date"]).timestamp()) * 1_000_000
    except (KeyError, ValueError, TypeError):
        return None
