"""The description of requests in formats of others: hooks, webhooks and spans."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from api.openapi.document import build_openapi_document
from api.openapi.foreign_formats import FOREIGN_ENDPOINTS
from hooks import urls as hook_urls
from tests.api.api_client import Caller
from traces import urls as trace_urls

pytestmark = pytest.mark.once
AGENTS = ("claude-code", "codex", "gemini")


def list_served_paths() -> set[str]:
    """Return the paths that the packages above the API serve."""
    tables = (("/hooks/", hook_urls.urlpatterns), ("/v1/", trace_urls.urlpatterns))
    return {
        prefix + re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern))
        for prefix, patterns in tables
        for pattern in patterns
    }


def list_references(value: Any) -> Iterator[str]:
    """Yield every reference in the document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from list_references(part)


def describe(path: str) -> Any:
    """Return the operation that posts to `path`."""
    return build_openapi_document()["paths"][path]["post"]


def test_the_description_names_the_served_paths() -> None:
    assert {endpoint.path for endpoint in FOREIGN_ENDPOINTS} == list_served_paths()
    assert list_served_paths() | {"/cloudevents"} <= set(build_openapi_document()["paths"])


def test_every_reference_and_authentication_is_defined() -> None:
    document = build_openapi_document()
    for reference in list_references(document):
        assert reference.rpartition("/")[2] in document["components"]["schemas"]
    defined = set(document["components"]["securitySchemes"])
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                assert {name for way in operation.get("security", ()) for name in way} <= defined


def test_each_path_says_where_it_is_and_who_may_call_it() -> None:
    paths = build_openapi_document()["paths"]
    assert paths["/v1/traces"]["servers"] == [{"url": "/"}]
    assert [path for path in paths if "servers" in paths[path]] == ["/v1/traces"]
    assert describe("/v1/traces")["security"] == [{"token": []}]
    assert describe("/hooks/codex")["security"] == [{"token": []}]
    assert describe("/hooks/github/{source}")["security"] == [{"githubSignature": []}]
    assert {"gitlabToken": []} in describe("/hooks/gitlab")["security"]
    assert not any(
        parameter["name"] == "Idempotency-Key"
        for endpoint in FOREIGN_ENDPOINTS
        for parameter in describe(endpoint.path)["parameters"]
    )


@pytest.mark.django_db
@pytest.mark.parametrize("path", [f"/hooks/{name}" for name in AGENTS])
def test_the_example_of_a_hook_is_answered_as_described(agent: Caller, path: str) -> None:
    operation = describe(path)
    sent = operation["requestBody"]["content"]["application/json"]["example"]
    answer = agent.post(path, sent)
    assert answer.status_code == 200
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    components = build_openapi_document()["components"]
    jsonschema_rs.validate(schema | {"components": components}, answer.json())
    assert "was not permitted" not in answer.text
    assert "nothing was executed" not in answer.text
