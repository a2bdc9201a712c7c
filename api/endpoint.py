"""Decorators for API endpoints: auth, parsing, idempotency, transaction.

An endpoint is a function view wrapped by `post_command` (POST with an Idempotency-Key) or
`get_endpoint` (GET). It parses the request, opens the transaction, calls one service function of a
lower layer and serializes the result.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec
import orjson
import structlog
from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from accounts import tokens
from accounts.tokens import TokenIdentity
from api import idempotency, path_converters, problems, writer_refusals
from api.idempotency import Reply
from api.problems import Problem
from api.redaction import redact
from api.schemas.core import PATTERN_ERRORS
from api.strictjson import parser
from api.strictjson.canonical_json import to_canonical_text
from db import long_numbers, outages, retry
from db.clock import now_us
from journal.entries import Lane, Origin, RepeatedKey
from ledger.store.writer import LostRace
from sessions import heartbeats
from sessions.writers import LeaseTakenConcurrently, WriterNotAllowed

log = structlog.get_logger("gatebook.api")

ITEM_BYTES: Final = 262_144
BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_ITEMS: Final = 1_000
MAX_JSON_DEPTH: Final = 32
JSON_MEDIA_TYPES: Final = frozenset({"application/json"})

Handler = Callable[..., HttpResponseBase]
S = TypeVar("S", bound=msgspec.Struct)


@dataclass(slots=True)
class Call:
    """An authenticated request of an agent."""

    request: HttpRequest
    token: TokenIdentity
    received_us: int
    key: str = ""
    redactions: int = 0
    kind: str = ""  # of the command
    session: UUID | None = None  # the session whose row the command has locked
    fence: int | None = None  # the fencing epoch of that session
    task: UUID | None = None  # the task that the command is about
    lease_epoch: int | None = None

    @property
    def project(self) -> UUID:
        """The token's project. Every query of the request is limited to it."""
        return self.token.project

    def arrived(self) -> None:
        """Set the receipt time to now, once the body has been read completely."""
        self.received_us = now_us()

    def origin(
        self, text: str, *, lane: Lane = "command", lease_epoch: int | None = None
    ) -> Origin:
        """Build the envelope of the fact that this command records."""
        return Origin(
            project=self.project,
            agent=self.token.agent,
            source=self.token.agent_name,
            actor=f"agent:{self.token.agent.hex}",
            lane=lane,
            key=self.key,
            text=text,
            received_us=self.received_us,
            lease_epoch=lease_epoch,
            imports=self.token.scope == "import",
            team=self.token.team,
        )

    @property
    def redaction_key(self) -> bytes | None:
        """The project's redaction key; None if redaction is off, as for imports."""
        if self.token.scope == "import" or not self.token.redacts:
            return None
        return redact.derive_project_key(self.project)


def post_command(
    shape: type[S], kind: str, **path_names: str
) -> Callable[[Callable[[Call, S, Origin, dict[str, UUID]], Reply]], Handler]:
    """Make a POST endpoint whose body has the type `shape`.

    `path_names` maps URL arguments to their names in the stored body. The wrapped function runs in
    a durable transaction and returns a Reply. A Problem that it raises rolls back; a refusal that
    it returns is committed. The stored body is the redacted request with its kind and path ids.
    A handle or a name in the path becomes an id of the token's project; the wrapped function checks
    ids that the path names itself.
    """

    def wrap(work: Callable[[Call, S, Origin, dict[str, UUID]], Reply]) -> Handler:
        @wraps(work)
        def endpoint(request: HttpRequest, **path_values: UUID | str) -> HttpResponseBase:
            call = authenticate_request(request)
            call.key, call.kind = (
                idempotency.read_idempotency_key(request, call.redaction_key),
                kind,
            )
            parsed = parse_body_object(request)
            value = _redact_body(call, parsed)
            body = convert_to_struct(value, shape)
            path = path_converters.resolve_path(call.project, path_values)
            path_ids = {
                path_names.get(name, name): str(identity) for name, identity in path.items()
            }
            text = to_canonical_text({**value, **path_ids, "kind": kind})
            call.lease_epoch = getattr(body, "lease_epoch", None)
            origin = call.origin(text, lease_epoch=call.lease_epoch)

            def run() -> Reply:
                # Permission can expire while the body is received or the transaction waits or is
                # retried, so every run takes the current time.
                call.received_us = origin.received_us = now_us()
                origin.lane = "command"  # an earlier try may have changed it
                reply = work(call, body, origin, path)
                if reply.kept and 200 <= reply.status < 300 and not reply.replay:
                    if (
                        call.session is not None
                        and call.fence is not None
                        and kind in heartbeats.PROGRESS_KINDS
                    ):
                        heartbeats.record_progress(
                            call.project, call.session, origin.lease_epoch, call.task
                        )
                    idempotency.store_response(origin, reply.status, reply.body)
                return reply

            reply = transact(run, lambda: idempotency.replay_response(origin, kind))
            response = build_json_response(reply.status, reply.body)
            for header, header_value in reply.headers.items():
                response[header] = header_value
            if reply.replay:
                response["Idempotent-Replay"] = "true"
            return response

        return handle_errors("POST")(endpoint)

    return wrap


def get_endpoint(work: Callable[..., HttpResponseBase]) -> Handler:
    """Make a GET endpoint: authenticated, without transaction, with ETag."""

    @wraps(work)
    def endpoint(request: HttpRequest, **path: UUID | str) -> HttpResponseBase:
        call = authenticate_request(request)
        response = work(call, **path_converters.resolve_path(call.project, path))
        if response.status_code == 200 and isinstance(response, HttpResponse):
            tag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
            if tag in request.META.get("HTTP_IF_NONE_MATCH", ""):
                response = HttpResponse(status=304)
            response["ETag"] = tag
        return response

    return handle_errors("GET", "HEAD")(endpoint)


def handle_errors(*methods: str) -> Callable[[Handler], Handler]:
    """Turn Problems, database outages (503) and wrong methods (405) into responses."""

    def wrap(endpoint: Handler) -> Handler:
        @wraps(endpoint)
        def inner(request: HttpRequest, **path: Any) -> HttpResponseBase:
            try:
                if request.method not in methods:
                    allowed = ", ".join(methods)
                    headers = {"Allow": allowed}
                    raise Problem(
                        405,
                        "method_not_allowed",
                        f"The method is not supported. Use {allowed}.",
                        headers=headers,
                    )
                return endpoint(request, **path)
            except Problem as problem:
                return problems.build_problem_response(problem)
            except (DatabaseError, InterfaceError) as error:
                outage = outages.classify_outage(error)
                if outage is not None or isinstance(error, OperationalError | InterfaceError):
                    log.error(
                        "database_unavailable",
                        outage=outage,
                        error=f"{type(error).__name__}: {error}"[:300],
                    )
                    outages.drop_read_only_connection(outage)
                    return problems.build_problem_response(_outage_problem(outage))
                log.error(
                    "database_refused",
                    error=f"{type(error).__name__}: {error}"[:300],
                    path=request.path,
                )
                detail = (
                    "The database rejected the request. Nothing was recorded. Do not repeat it"
                    " unchanged; ask the operator for the cause in the server log."
                )
                return problems.build_problem_response(Problem(500, "server_error", detail))

        inner.csrf_exempt = True  # type: ignore[attr-defined]  # agents carry no cookies
        return inner

    return wrap


UNAVAILABLE: Final = Problem(
    503,
    "unavailable",
    "Temporarily unavailable. Retry with the same Idempotency-Key; the command runs at most once.",
    headers={"Retry-After": "1"},
)
_NOTHING_STORED: Final = "Nothing was stored. Retry later with the same Idempotency-Key."
_OUTAGE_DETAILS: Final = {
    "read_only": f"The database is read-only. {_NOTHING_STORED}",
    "full": f"The database's disk is full. {_NOTHING_STORED}",
}


def _outage_problem(outage: outages.Outage | None) -> Problem:
    if outage is None or outage not in _OUTAGE_DETAILS:
        return UNAVAILABLE
    return Problem(
        503,
        "unavailable",
        _OUTAGE_DETAILS[outage],
        headers={"Retry-After": str(outages.RETRY_AFTER_S[outage])},
    )


def dispatch_by_method(**endpoints: Handler) -> Handler:
    """Dispatch one URL to an endpoint per HTTP method."""
    allowed = ", ".join(endpoints)

    def dispatch(request: HttpRequest, **path: Any) -> HttpResponseBase:
        method = "GET" if request.method == "HEAD" and "GET" in endpoints else request.method
        endpoint = endpoints.get(method or "")
        if endpoint is None:
            headers = {"Allow": allowed}
            return problems.build_problem_response(
                Problem(
                    405,
                    "method_not_allowed",
                    f"The method is not supported. Use {allowed}.",
                    headers=headers,
                )
            )
        return endpoint(request, **path)

    dispatch.csrf_exempt = True  # type: ignore[attr-defined]  # agents carry no cookies
    return dispatch


def transact(run: Callable[[], Reply], replay: Callable[[], Reply | None]) -> Reply:
    """Run the endpoint's transaction; retry after a lost race or deadlock.

    If the journal already has the idempotency key, return the stored response instead.
    """
    for attempts_left in reversed(range(retry.MAX_TRIES)):
        try:
            with transaction.atomic(durable=True):
                return run()
        except (LostRace, LeaseTakenConcurrently):
            if not attempts_left:
                raise UNAVAILABLE from None
        except (WriterNotAllowed, RepeatedKey) as ended:
            with transaction.atomic(durable=True):
                reply = (
                    replay()
                    if isinstance(ended, RepeatedKey)
                    else writer_refusals.refuse_writer(ended, replay)
                )
            if reply is not None:
                if reply.replay and reply.status >= 400:
                    raise Problem(reply.status, reply.body["code"], reply.body["detail"]) from None
                return reply
        except DatabaseError as error:
            if not attempts_left or not retry.is_retry_requested(error):
                raise
    raise UNAVAILABLE


def authenticate_request(request: HttpRequest) -> Call:
    """Authenticate the request by its token.

    One query; at most once a minute, also a write of when the token was last used.
    Problems: 400 for a token in the URL, 401 for a missing or invalid token, 403 for a write with
    a read-only token.
    """
    address = request.META.get("QUERY_STRING", "")
    if (
        "token" in request.GET
        or "access_token" in request.GET
        or tokens.TOKEN_PATTERN.search(address)
    ):
        raise Problem(
            400,
            "token_in_query",
            "The URL contains a token. Send the token in the Authorization header only.",
        )
    token = tokens.authenticate_token(request.META.get("HTTP_AUTHORIZATION"))
    if token is None:
        headers = {"WWW-Authenticate": "Bearer"}
        detail = (
            "The token is missing, unknown, expired or revoked."
            " Send a valid token as `Authorization: Bearer gbk_…`."
        )
        raise Problem(401, "unauthorized", detail, headers=headers)
    if token.scope == "audit" and request.method not in ("GET", "HEAD"):
        raise Problem(
            403,
            "read_only",
            "A token with scope `audit` is read-only. Use a token with scope `agent`.",
        )
    return Call(request, token, now_us())


def parse_body_object(request: HttpRequest) -> parser.Parsed:
    """Parse the JSON object in the body strictly. An empty body is an empty object."""
    raw = parser.read_body(request, limit=ITEM_BYTES, allow_empty=True)
    if not raw:
        return parser.Parsed({}, "{}")
    parser.check_content_type(request, JSON_MEDIA_TYPES)
    return parser.parse_object(raw)


def _redact_body(call: Call, parsed: parser.Parsed) -> dict[str, Any]:
    key = call.redaction_key
    if key is None or not redact.might_contain_secret(parsed.text):
        return parsed.value
    value, call.redactions = redact.redact_value(parsed.value, key)
    return cast(dict[str, Any], value)


def convert_to_struct(value: dict[str, Any], shape: type[S]) -> S:
    """Convert `value` to `shape`. Problem 422 with the JSON pointer of the fault."""
    try:
        return msgspec.convert(value, shape, strict=True)
    except msgspec.ValidationError as error:
        message = str(error)
        expectation, _, location = message.partition(" - at `")
        expectation = next(
            (
                error_text
                for pattern, error_text in PATTERN_ERRORS.items()
                if expectation.endswith(repr(pattern))
            ),
            expectation,
        )
        # For a key that the sender chose, msgspec names only `[...]` or `key` in `…`, so the
        # pointer names the object that contains the key.
        path = location.removeprefix("key` in `").partition("[...]")[0]
        pointer = path.rstrip("`").lstrip("$").replace("[", ".").replace("]", "").replace(".", "/")
        raise Problem(
            422,
            "invalid",
            f"{expectation}. See /api/v1/openapi.json for the schema.",
            pointer=pointer,
        ) from None


def build_json_response(status: int, body: Any) -> HttpResponse:
    """Build a JSON response; errors have the problem media type. Never cached."""
    response = HttpResponse(
        long_numbers.to_json_bytes(body, orjson.OPT_PASSTHROUGH_DATACLASS), status=status
    )
    response["Content-Type"] = "application/json" if status < 400 else problems.CONTENT_TYPE
    response["Content-Length"] = str(len(response.content))  # otherwise the server sends chunks
    response["Cache-Control"] = "no-store"
    return response
