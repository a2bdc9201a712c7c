"""HTTP requests, each under one idempotency key, retried until answered."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from gatebook_client.blocking import Blocking, BlockingIo, Io, to_blocking
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


class AsyncHttpClient:
    """Sends requests to the Gatebook at `url`, and waits by its `io`."""

    def __init__(self, url: str, token: str, *, patience_s: float, io: Io) -> None:
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        self.io = io
        self._token = token

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        await self.io.sleep(seconds)

    async def get(self, /, path: str, *, timeout_s: float = TIMEOUT_S, **params: Any) -> Response:
        """Read; empty parameters are left out. Raises ServerUnavailable, Refused."""
        params = {name: value for name, value in params.items() if value not in ("", None)}
        _encode_body(params)
        return await self._ask("GET", path, timeout_s=timeout_s, params=params)

    async def post(
        self,
        path: str,
        body: Json | list[Json],
        *,
        key: str = "",
        patience_s: float | None = None,
        keyless: bool = False,
    ) -> Response:
        """Send one command, under `key` or a new one. Raises ServerUnavailable, Refused."""
        headers = {} if keyless else {"Idempotency-Key": key or new_key()}
        headers["Content-Type"] = "application/json"
        return await self._ask(
            "POST", path, headers=headers, content=_encode_body(body), patience_s=patience_s
        )

    async def put(self, path: str, content: bytes) -> Response:
        """Store bytes. Raises ServerUnavailable, Refused."""
        headers = {"Content-Type": "application/octet-stream"}
        return await self._ask("PUT", path, headers=headers, content=content, timeout_s=60)

    async def close(self) -> None:
        """Close the connections."""
        await self.io.close()

    async def _ask(
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
                response = await self.io.request(method, path, timeout=timeout_s, **request)
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
            await self.sleep(max(wait_s, retry_after_s))
            wait_s = min(2 * wait_s, MAX_RETRY_S)


class HttpClient(Blocking[AsyncHttpClient]):
    """Sends requests to the Gatebook at `url`, and blocks until they are answered.

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
        io = BlockingIo(token, check_address(url, token), transport, sleep)
        super().__init__(AsyncHttpClient(url, token, patience_s=patience_s, io=io))
        self.io = io

    get = to_blocking(AsyncHttpClient.get)
    post = to_blocking(AsyncHttpClient.post)
    put = to_blocking(AsyncHttpClient.put)
    sleep = to_blocking(AsyncHttpClient.sleep)
    close = to_blocking(AsyncHttpClient.close)

    @property
    def url(self) -> str:
        """The address of Gatebook."""
        return self.core.url


def check_address(url: str, token: str) -> str:
    """Return the address of the API at `url`. Raises ValueError without address or token."""
    if not url or not token:
        missing = (
            "an address (url, or GATEBOOK_URL)" if not url else "a token (token, or GATEBOOK_TOKEN)"
        )
        raise ValueError(f"Gatebook needs {missing}.")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"The address {url} is not valid. It must begin with http:// or https://.")
    return f"{url.rstrip('/')}/api/v1"


def _encode_body(body: Json | list[Json]) -> bytes:
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
