"""A person with a minimal browser: signs in, stores cookies, reads pages and sends forms."""

import http.client
import re
from urllib.parse import urlencode

_TOKEN = re.compile(rb'name="csrfmiddlewaretoken" value="([^"]+)"')


class Person:
    """A person who is signed in, on one persistent connection."""

    def __init__(self, port: int, name: str, password: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._cookies: dict[str, str] = {}
        self._send("POST", "/sign-in/", {"username": name, "password": password}, expected=302)

    def get(self, path: str) -> bytes:
        """Return a page; RuntimeError if the answer is not 200."""
        return self._ask("GET", path, None, expected=200)

    def fill_in(self, path: str, fields: dict[str, str]) -> None:
        """Send the form at `path`; RuntimeError unless it answers with a redirect."""
        self._send("POST", path, fields, expected=302)

    def _send(self, method: str, path: str, fields: dict[str, str], *, expected: int) -> None:
        if "csrf" not in self._cookies:
            token = _TOKEN.search(self.get(path))
            if token is None:
                raise RuntimeError(f"{path} has no form")
            self._cookies["csrf"] = token[1].decode()
        body = urlencode({**fields, "csrfmiddlewaretoken": self._cookies["csrf"]})
        self._ask(method, path, body.encode(), expected=expected)

    def _ask(self, method: str, path: str, body: bytes | None, *, expected: int) -> bytes:
        headers = {
            "Cookie": "; ".join(
                f"{name}={value}" for name, value in self._cookies.items() if name != "csrf"
            )
        }
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            answer = self._answer(method, path, body, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            if body is not None:
                raise
            # The server closes idle connections; browsers then retry on a new one.
            self._connection.close()
            answer = self._answer(method, path, body, headers)
        text = answer.read()
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = cookie.partition(";")[0].partition("=")
            if self._cookies.get(name.strip()) != value and name.strip().endswith("csrf"):
                self._cookies.pop(
                    "csrf", None
                )  # signing in changes the token; read it again from the next form
            self._cookies[name.strip()] = value
        if answer.status != expected:
            raise RuntimeError(f"{method} {path} was answered {answer.status}: {text[:300]!r}")
        return text

    def _answer(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        self._connection.request(method, path, body=body, headers=headers)
        return self._connection.getresponse()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
