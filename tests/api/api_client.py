"""A test client for agents: HTTP with a token, nothing else."""

import json
import logging
import ssl
import uuid
from typing import Any

import httpx

ADDRESS = "http://127.0.0.1"
logging.getLogger("httpx").setLevel(logging.WARNING)  # one unused line per request
NO_TLS = ssl.SSLContext(
    ssl.PROTOCOL_TLS_CLIENT
)  # otherwise every client reads all certificates of the machine


def new_key() -> str:
    """Return an idempotency key that was never used."""
    return uuid.uuid4().hex


class Caller:
    """A client below /api/v1 with one token, of the WSGI application `app` or the server at
    `address`."""

    def __init__(self, token: str | None, *, app: Any = None, address: str = ADDRESS) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = None if app is None else httpx.WSGITransport(app=app)
        self.token = token or ""
        self.client = httpx.Client(
            base_url=f"{address}/api/v1",
            headers=headers,
            transport=transport,
            timeout=60,
            verify=NO_TLS,
        )

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.client.get(path, params=query or None)

    def post(
        self,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """POST `body` as JSON under `key`, or under a new key."""
        sent = {
            "Idempotency-Key": key or new_key(),
            "Content-Type": "application/json",
            **(headers or {}),
        }
        return self.client.post(
            path, content=json.dumps({} if body is None else body), headers=sent
        )

    def raw(self, path: str, content: bytes, **headers: str) -> httpx.Response:
        """POST bytes as they are; underscores in the names of headers become hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(
            path,
            content=content,
            headers={"Idempotency-Key": new_key(), "Content-Type": "application/json", **named},
        )

    def report(self, items: list[dict[str, Any]], query: str = "") -> httpx.Response:
        """POST a batch of facts."""
        return self.client.post(f"/events{query}", json=items)

    def session(self, key: str = "s-1", **fields: Any) -> dict[str, Any]:
        """Open a session and return the answer."""
        return self._done(self.post("/sessions", {"key": key, **fields}))

    def plan(self, effect_key: str = "e-1", session: str = "s-1", **fields: Any) -> dict[str, Any]:
        """Plan an effect of a session that is open, and return the answer."""
        body = {
            "session": session,
            "effect_key": effect_key,
            "tool": "git.push",
            "arguments": {"ref": "main"},
        }
        return self._done(self.post("/effects", body | fields))

    def dispatch(
        self, effect: dict[str, Any], process: str = "p-1", key: str | None = None
    ) -> dict[str, Any]:
        """Dispatch a planned effect and return the answer."""
        body = {"process": process, "intent_digest": effect["intent_digest"]}
        return self._done(self.post(f"/effects/{effect['id']}/dispatch", body, key=key))

    def acknowledge(
        self, effect: dict[str, Any], attempt: int = 1, **fields: Any
    ) -> dict[str, Any]:
        """Acknowledge an attempt as ok, or with `fields`, and return the answer."""
        body = {"attempt": attempt, "outcome": "ok", **fields}
        return self._done(self.post(f"/effects/{effect['id']}/acknowledge", body))

    def fail(self, effect: dict[str, Any], reason: str, attempt: int = 1) -> dict[str, Any]:
        """Report that an attempt failed and return the answer."""
        return self._done(
            self.post(f"/effects/{effect['id']}/fail", {"attempt": attempt, "reason": reason})
        )

    @staticmethod
    def _done(answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code in (200, 201), answer.text
        body: dict[str, Any] = answer.json()
        return body


def code(answer: httpx.Response) -> tuple[int, str]:
    """Check the form of a refusal (RFC 9457) and return its status and code."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    assert {"type", "title", "code", "detail"} <= body.keys()
    assert body["detail"].endswith(".")
    return answer.status_code, body["code"]
