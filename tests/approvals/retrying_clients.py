"""HTTP clients that retry as the documents say when Gatebook or its database is away."""

import re
import time
from typing import Any

import httpx

from tests.api.api_client import NO_TLS, Caller, new_key

WITHIN_S = 60
_SEEN = re.compile(r'name="seen" value="([^"]+)"')
_CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class RetryingCaller:
    """Sends a request again, under the same key, until it is answered; never longer than WITHIN_S."""

    def __init__(self, agent: Caller) -> None:
        self.agent = agent
        self.refused: list[httpx.Response] = []

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self._retry("GET", path, params=query)

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self._retry("POST", path, json=body, headers={"Idempotency-Key": new_key()})

    def wait(self, gate: str) -> dict[str, Any]:
        """Return the gate as soon as people have ruled."""
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            answer: dict[str, Any] = self.get(f"/gates/{gate}", wait=20, since=1).json()
            if answer["status"] != "pending":
                return answer
        raise AssertionError("a ruling never arrived")

    def wait_for(self, gates: list[str]) -> list[dict[str, Any]]:
        """Return several gates, watched by one request, as soon as people have ruled on each."""
        until, left, ruled = time.monotonic() + WITHIN_S, dict.fromkeys(gates, 1), {}
        while left and time.monotonic() < until:
            for state in self.post("/gates/wait", {"gates": left, "wait": 20}).json()["gates"]:
                if state["status"] != "pending":
                    ruled[state["id"]] = state
                    del left[state["id"]]
        return [ruled[gate] for gate in gates]

    def _retry(self, method: str, path: str, **more: Any) -> httpx.Response:
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            try:
                answer = self.agent.client.request(method, path, **more)
            except httpx.TransportError:  # the server is away
                time.sleep(0.05)
                continue
            if answer.status_code != 503:
                assert answer.status_code in (200, 201), answer.text
                return answer
            self.refused.append(answer)
            time.sleep(float(answer.headers["Retry-After"]))
        raise AssertionError(f"{path} was never answered")


class Browser:
    """A person signed in at the real server, without script."""

    def __init__(self, url: str, name: str, password: str) -> None:
        self.client = httpx.Client(
            base_url=url, timeout=30, verify=NO_TLS, headers={"Referer": url}
        )
        page = self.client.get("/sign-in/").text
        fields = {
            "username": name,
            "password": password,
            "csrfmiddlewaretoken": _CSRF.search(page)[1],  # type: ignore[index]
        }
        assert self.client.post("/sign-in/", data=fields).status_code == 302

    def load_form(self, gate: str) -> dict[str, str] | None:
        """Return the form of a gate, filled in with an approval; None when the page has no form."""
        page = self.client.get(f"/approvals/{gate}/")
        until = time.monotonic() + WITHIN_S
        while page.status_code == 503 and time.monotonic() < until:
            page = self.client.get(f"/approvals/{gate}/")
        assert page.status_code == 200, page.text
        seen, csrf = _SEEN.search(page.text), _CSRF.search(page.text)
        if seen is None:
            return None
        assert csrf is not None
        words = {"answer": "approve", "reason": "agreed in INC-204", "settled": "1"}
        return {**words, "seen": seen[1], "csrfmiddlewaretoken": csrf[1]}

    def send(self, gate: str, form: dict[str, str]) -> httpx.Response:
        """Send the form of a gate; return any answer."""
        return self.client.post(f"/approvals/{gate}/vote/", data=form)

    def vote_until_recorded(self, gate: str) -> None:
        """Read the gate, and answer while an answer is possible, until it is recorded."""
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            form = self.load_form(gate)
            if form is None or self.send(gate, form).status_code == 302:
                return
        raise AssertionError("an answer was never taken")
