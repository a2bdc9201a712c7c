"""The client: waits on Retry-After, and reports refusals clearly."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from importers.api_client import (
    MAX_RETRY_WAIT_S,
    MAX_TRIES,
    BatchCounts,
    ImportClient,
    ImportRefusedError,
)
from importers.to_events import encode_json

Handler = Callable[[httpx.Request], httpx.Response]
ITEMS = [encode_json({"id": f"e{place}", "kind": "effect.planned"}) for place in range(3)]


def _client(handler: Handler) -> tuple[ImportClient, list[float]]:
    waits: list[float] = []
    http = httpx.Client(
        transport=httpx.MockTransport(handler),
        base_url="http://gatebook.example",
        headers={"Authorization": "Bearer gbk_x"},
    )
    return ImportClient(http, waits.append), waits


def _results(request: httpx.Request, status: str = "created", **more: Any) -> httpx.Response:
    items = json.loads(request.content)
    results = [
        {"index": index, "id": item["id"], "status": status, **more}
        for index, item in enumerate(items)
    ]
    return httpx.Response(207, json={"accepted": len(items), "results": results})


def test_items_are_posted_as_one_array_with_the_token() -> None:
    requests: list[httpx.Request] = []

    def server(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return _results(request)

    client, waits = _client(server)
    assert client.send(ITEMS) == BatchCounts(created=3)
    assert (requests[0].method, requests[0].url.path) == ("POST", "/api/v1/events")
    assert requests[0].headers["Authorization"] == "Bearer gbk_x"
    assert [item["id"] for item in json.loads(requests[0].content)] == ["e0", "e1", "e2"]
    assert waits == []


def test_already_recorded_items_are_counted_separately() -> None:
    client, _ = _client(lambda request: _results(request, "duplicate"))
    assert client.send(ITEMS) == BatchCounts(already_recorded=3)


@pytest.mark.parametrize("status", [429, 503])
def test_it_waits_as_long_as_the_server_asks(status: int) -> None:
    answers = iter(["2", "3000", "soon", None])

    def server(request: httpx.Request) -> httpx.Response:
        retry_after = next(answers)
        return (
            _results(request)
            if retry_after is None
            else httpx.Response(status, headers={"Retry-After": retry_after})
        )

    client, waits = _client(server)
    assert client.send(ITEMS) == BatchCounts(created=3)
    assert waits == [2.0, MAX_RETRY_WAIT_S, 2.0]


def test_items_that_change_nothing_are_no_success() -> None:
    client, _ = _client(
        lambda request: _results(request, note="other_agent", detail="Kept as a claim.")
    )
    with pytest.raises(
        ImportRefusedError, match=r"belongs to another agent\. Import the file as that agent"
    ):
        client.send(ITEMS)


def test_it_does_not_wait_for_ever() -> None:
    problem = {"detail": "The database is away; try again in a moment.", "code": "BUSY"}
    client, waits = _client(
        lambda request: httpx.Response(503, json=problem, headers={"Retry-After": "1"})
    )
    with pytest.raises(
        ImportRefusedError, match=r"The database is away; try again in a moment\. \(HTTP 503\)"
    ):
        client.send(ITEMS)
    assert len(waits) == MAX_TRIES - 1


def test_a_broken_connection_is_retried() -> None:
    tries: list[int] = []

    def server(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        if len(tries) in (2, 3):
            raise httpx.ReadError("connection reset")
        return _results(request)

    client, waits = _client(server)
    assert client.send(ITEMS) == client.send(ITEMS) == BatchCounts(created=3)
    assert waits == [0.5, 1.0]


def test_a_server_that_is_not_there_is_named_as_such_at_once() -> None:
    def refuse_connection(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    client, waits = _client(refuse_connection)
    with pytest.raises(
        ImportRefusedError, match=r"The server cannot be reached \(Connection refused\)"
    ):
        client.send(ITEMS)
    assert waits == []


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("invalid", r"^event e1: It was told otherwise\.$"),
        # The server's advice to use a new id is for agents, not for users with files.
        (
            "conflict",
            r"^event e1: This session was already imported from a file with another beginning\.",
        ),
    ],
)
def test_a_refused_item_is_named_with_a_sentence(status: str, sentence: str) -> None:
    def server(request: httpx.Request) -> httpx.Response:
        results = [
            {"index": 0, "id": "e0", "status": "created"},
            {
                "index": 1,
                "id": "e1",
                "status": status,
                "code": status,
                "detail": "It was told otherwise.",
                "retryable": False,
            },
            {"index": 2, "id": "e2", "status": "created"},
        ]
        return httpx.Response(207, json={"accepted": 2, "results": results})

    client, _ = _client(server)
    with pytest.raises(ImportRefusedError, match=sentence):
        client.send(ITEMS)


def test_only_retryable_items_are_retried() -> None:
    bodies: list[list[str]] = []

    def server(request: httpx.Request) -> httpx.Response:
        ids = [item["id"] for item in json.loads(request.content)]
        bodies.append(ids)
        retryable = {"e1"} if len(bodies) == 1 else set()
        results = [
            {
                "index": index,
                "id": name,
                "status": "invalid" if name in retryable else "created",
                "retryable": name in retryable,
            }
            for index, name in enumerate(ids)
        ]
        return httpx.Response(207, json={"accepted": 0, "results": results})

    client, waits = _client(server)
    assert client.send(ITEMS) == BatchCounts(created=3)
    assert bodies == [["e0", "e1", "e2"], ["e1"]]
    assert waits == [0.5]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>hello"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"results": []}),
    ],
)
def test_an_answer_of_something_else_is_refused(answer: httpx.Response) -> None:
    client, _ = _client(lambda request: answer)
    with pytest.raises(ImportRefusedError):
        client.send(ITEMS)


def test_an_error_without_a_body_is_reported_by_its_status() -> None:
    client, _ = _client(lambda request: httpx.Response(401, text="no"))
    with pytest.raises(ImportRefusedError, match=r"Unauthorized \(HTTP 401\)"):
        client.send(ITEMS)
