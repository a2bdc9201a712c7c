"""The API and its description: schemathesis sends what openapi.json allows and what it forbids."""

import zlib
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, CheckContext, GenerationMode, Response
from schemathesis.specs.openapi import checks

from api.openapi import foreign_formats
from api.openapi.document import build_openapi_document
from tests.api.api_client import Caller, new_key
from tests.config.row_snapshot import Kept

pytestmark = (
    pytest.mark.once
)  # the description is the same for both databases; test_hostile.py runs on each
# Schemathesis knows no servers of a single path: `spans` has those of the paths left out.
schema = schemathesis.pytest.from_fixture("described").exclude(
    path=list(foreign_formats.PATH_SERVERS)
)
spans = schemathesis.pytest.from_fixture("described_spans")
# Hooks are answered with 200 whatever they are, so that no client runs a call after an error.
HOOKS = tuple(
    endpoint.path for endpoint in foreign_formats.FOREIGN_ENDPOINTS if endpoint.tag == "hooks"
)
ONE_IN = 40  # operations are in the sample
BOUNDED = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Rules outside the description of one request: that named objects exist, combinations of
# parameters, and limits of numbers and nesting inside a field of any JSON.
OF_THE_WORLD = {
    "session_missing",
    "too_deep",
    "on_behalf_of_unknown",
    "owner_unknown",
    "parent_unknown",
    "task_unknown",
    "agent_unknown",
    "message_unknown",
    "branched_from_unknown",
    "session_unknown",
    "session_is_itself",
    "parent_is_below",
    "not_waiting",
    "waits_on_missing",
    "waits_on_unknown",
    "content_differs",
    "key_reuse",
    "batch_refused",
    "evaluate_policies_is_for_imports",
    "query_invalid",
    "parameters_exclude",
}


def taken_as_described(context: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Check that allowed requests are accepted; 2.0 for 2 is refused although JSON Schema allows
    it."""
    if response.status_code == 422:
        problem = response.json()
        if problem["code"] in OF_THE_WORLD or "got `float`" in problem["detail"]:
            return None
    return checks.positive_data_acceptance(context, response, case)


def refused_as_described(context: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Check that forbidden requests are refused; in a batch, item by item."""
    if response.status_code == 207:
        assert int(response.headers["gatebook-rejected"][0]) > 0
        return None
    if response.status_code == 413:
        return None
    if case.path in HOOKS:
        assert response.status_code == 200
        return None
    if case.path in foreign_formats.PATH_SERVERS and response.status_code == 200:
        return None  # OTLP takes the usable spans of a request and ignores unknown fields
    return checks.negative_data_rejection(context, response, case)


def refuses_other_methods(
    context: CheckContext, response: Response, case: Case[Any]
) -> bool | None:
    """Check that other methods are refused; a hook's answer then denies."""
    if case.path in HOOKS:
        return None
    return checks.unsupported_method(context, response, case)


def needs_its_headers(context: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Check that a missing header is refused; of webhooks, the signature decides first."""
    if case.path in HOOKS:
        return None
    if case.path.startswith("/hooks/"):
        assert response.status_code in (400, 401, 404, 405)
        return None
    return checks.missing_required_header(context, response, case)


CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    refused_as_described,
    taken_as_described,
    needs_its_headers,
    refuses_other_methods,
]


@pytest.fixture
def described(application: Any) -> Any:
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", application)
    schema.config.generation.update(modes=list(GenerationMode))
    return schema


@pytest.fixture
def described_spans(application: Any) -> Any:
    """The paths that are not below /api/v1, with their own server as that of the document."""
    document = build_openapi_document()
    paths = {path: document["paths"][path] for path in foreign_formats.PATH_SERVERS}
    schema = schemathesis.openapi.from_dict(document | {"servers": [{"url": "/"}], "paths": paths})
    schema.app = application
    schema.config.generation.update(modes=list(GenerationMode))
    return schema


@pytest.fixture
def ids(agent: Caller) -> dict[str, str]:
    """Return one object of each kind that paths name."""
    return _IDS.again(lambda: make_ids(agent))


_IDS = Kept[dict[str, str]](for_s=120)


def make_ids(agent: Caller) -> dict[str, str]:
    session = agent.session("s-1")
    task = agent.post(f"/sessions/{session['id']}/tasks", {"key": "t"}).json()
    about = {
        "session": "s-1",
        "type": "t",
        "sha256": "0" * 64,
        "size": 1,
        "media_type": "text/plain",
    }
    artifact = agent.post("/artifacts", about).json()
    dispatched = agent.dispatch(agent.plan())
    ids = {
        "session": session["id"],
        "task": task["id"],
        "effect": dispatched["id"],
        "artifact": artifact["id"],
    }
    for name, body in (
        ("checkpoint", {}),
        ("decision", {"key": "d", "choice": "left"}),
        ("handoff", {}),
    ):
        ids[name] = agent.post(f"/sessions/{session['id']}/{name}s", body).json()["id"]
    ids["message"] = agent.post("/messages", {"to": "shared", "body": "hello"}).json()["id"]
    return ids


def is_in_sample(context: Any) -> bool:
    return zlib.crc32(context.operation.label.encode()) % ONE_IN == 0


@schema.include(is_in_sample).parametrize()
@BOUNDED
def test_a_sample_of_answers_is_as_described(
    case: Case[Any], agent: Caller, ids: dict[str, str]
) -> None:
    check_answer(case, agent, ids)


@pytest.mark.matrix
@schema.parametrize()
@BOUNDED
def test_every_answer_is_as_described(case: Case[Any], agent: Caller, ids: dict[str, str]) -> None:
    check_answer(case, agent, ids)


def check_answer(case: Case[Any], agent: Caller, ids: dict[str, str]) -> None:
    if case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE:
        # Generated ids always get 404, and used keys 422.
        case.path_parameters = {
            name: ids.get(name, value) for name, value in case.path_parameters.items()
        }
        if "Idempotency-Key" in case.headers:
            case.headers["Idempotency-Key"] = new_key()
    case.call_and_validate(headers={"Authorization": f"Bearer {agent.token}"}, checks=CHECKS)


@spans.parametrize()
@BOUNDED
def test_every_answer_about_spans_is_as_described(case: Case[Any], agent: Caller) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {agent.token}"}, checks=CHECKS)
