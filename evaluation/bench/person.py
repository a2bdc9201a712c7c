"""A person's browser, as far as the benchmark needs one: signs in, keeps cookies, reads pages and
sends forms."""

import http.client
import re
from urllib.parse import urlencode

_TOKEN = re.compile(rb'name="csrfmiddlewaretoken" value="([^"]+)"')


class Person:
    """Somebody signed in, on one connection that is kept open."""

    def __init__(self, port: int, name: str, password: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._cookies: dict[str, str] = {}
        self._send("POST", "/sign-in/", {"username": name, "password": password}, expected=302)

    def get(self, path: str) -> bytes:
        """Return a page; RuntimeError when the answer is not 200."""
        return self._ask("GET", path, None, expected=200)

    def fill_in(self, path: str, fields: dict[str, str]) -> None:
        """Send the form at `path`, which must accept it (and answer with a redirect)."""
        self._send("POST", path, fields, expected=302)

    def _send(self, method: str, path: str, fields: dict[str, str], *, expected: int) -> None:
        if "csrf" not in self._cookies:
            found = _TOKEN.search(self.get(path))
            if found is None:
                raise RuntimeError(f"{path} has no form")
            self._cookies["csrf"] = found[1].decode()
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
            # The server hangs up on whoever was silent for long; browsers then ask again on a new
            # connection.
            self._connection.close()
            answer = self._answer(method, path, body, headers)
        text = answer.read()
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = cookie.partition(";")[0].partition("=")
            if self._cookies.get(name.strip()) != value and name.strip().endswith("csrf"):
                self._cookies.pop(
                    "csrf", None
                )  # signing in changes it: the next form brings the new one
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
        """Hang up."""
        self._connection.close()
