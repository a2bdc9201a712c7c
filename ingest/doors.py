"""The kit of which every agents' door is made: who asks, what was sent, one transaction, one answer.

A door is a function view wrapped by `command` (POST with an Idempotency-Key) or `reading` (GET). It reads strictly,
opens the transaction, calls one verb of the rooms below and puts the outcome into words; nothing else happens here.
"""

import hashlib
import re
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

from ingest import answers, fencing, paths, problems, redaction, strict
from ingest.canonical import canonical_text
from ingest.problems import Problem
from ingest.reply import Reply
from ingest.shapes import PATTERNS_IN_WORDS
from journal import again, entries, exact, outages
from journal.clock import now_us
from ledger.effects import LostRace
from sessions import beats, speakers, tokens
from sessions.fences import Overtaken
from sessions.origin import Lane, Origin, Repeated
from sessions.speakers import NotAllowed, Standing
from sessions.tokens import Bearer

log = structlog.get_logger("gatebook.ingest")

ITEM_BYTES: Final = 262_144
BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_ITEMS: Final = 1_000
DEPTH: Final = 32
KEY_CHARACTERS: Final = 64
_KEY: Final = re.compile(f"[!-~]{{1,{KEY_CHARACTERS}}}")
JSON: Final = frozenset({"application/json"})

Handler = Callable[..., HttpResponseBase]
S = TypeVar("S", bound=msgspec.Struct)


@dataclass(slots=True)
class Call:
    """One request of an agent, read and checked."""

    request: HttpRequest
    token: Bearer
    received_us: int
    key: str = ""
    redactions: int = 0
    kind: str = ""  # of the command
    session: UUID | None = None  # whose row the command has locked, its fence, and the task it is about
    fence: int | None = None
    task: UUID | None = None
    lease_epoch: int | None = None

    @property
    def project(self) -> UUID:
        """The token's project: the wall."""
        return self.token.project

    def arrived(self) -> None:
        """Note that the whole request is here: however slowly it was sent, it is received now."""
        self.received_us = now_us()

    def origin(self, text: str, *, lane: Lane = "command", lease_epoch: int | None = None) -> Origin:
        """The envelope of the fact that this command is."""
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
        """The project's key for marking secrets; None where redaction is off (imports, or by the project's choice)."""
        if self.token.scope == "import" or not self.token.redacts:
            return None
        return redaction.project_key(self.project)


def command(
    shape: type[S], kind: str, **path_names: str
) -> Callable[[Callable[[Call, S, Origin, dict[str, UUID]], Reply]], Handler]:
    """Make a door for a POST that carries `shape`. `path_names` maps URL arguments to the body's names for them.

    The wrapped function runs inside a durable transaction and returns a Reply; a Problem it raises leaves nothing, a
    refusal it returns is committed. The fact's body is what was sent, redacted, with its kind and the ids of the path.
    """

    def wrap(work: Callable[[Call, S, Origin, dict[str, UUID]], Reply]) -> Handler:
        @wraps(work)
        def door(request: HttpRequest, **asked: UUID | str) -> HttpResponseBase:
            call = authenticated(request)
            call.key, call.kind = _idempotency_key(request, call.redaction_key), kind
            parsed = read_object(request)
            value = _redacted(call, parsed)
            body = convert(value, shape)
            path = paths.resolve(call.project, asked)
            named = {path_names.get(name, name): str(identity) for name, identity in path.items()}
            text = canonical_text({**value, **named, "kind": kind})
            call.lease_epoch = getattr(body, "lease_epoch", None)
            origin = call.origin(text, lease_epoch=call.lease_epoch)

            def run() -> Reply:
                # The clocks of leave run on while a body is held back, or a transaction is waited for or tried again.
                call.received_us = origin.received_us = now_us()
                reply = work(call, body, origin, path)
                if reply.kept and 200 <= reply.status < 300 and not reply.replay:
                    if call.session is not None and call.fence is not None and kind in beats.MOVING:
                        beats.progressed(call.project, call.session, origin.lease_epoch, call.task)
                    answers.keep(origin, reply.status, reply.body)
                return reply

            reply = transact(run, lambda: answers.replay(origin, kind))
            response = as_json(reply.status, reply.body)
            for name, said in reply.headers.items():
                response[name] = said
            if reply.replay:
                response["Idempotent-Replay"] = "true"
            return response

        return guarded("POST")(door)

    return wrap


def reading(work: Callable[..., HttpResponseBase]) -> Handler:
    """Make a door for a GET: authenticated, without a transaction; answers 304 to a matching If-None-Match."""

    @wraps(work)
    def door(request: HttpRequest, **path: UUID | str) -> HttpResponseBase:
        call = authenticated(request)
        response = work(call, **paths.resolve(call.project, path))
        if response.status_code == 200 and isinstance(response, HttpResponse):
            tag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
            if tag in request.META.get("HTTP_IF_NONE_MATCH", ""):
                response = HttpResponse(status=304)
            response["ETag"] = tag
        return response

    return guarded("GET", "HEAD")(door)


def guarded(*methods: str) -> Callable[[Handler], Handler]:
    """Turn every Problem into its answer, an absent database into 503, and another method into 405."""

    def wrap(door: Handler) -> Handler:
        @wraps(door)
        def inner(request: HttpRequest, **path: Any) -> HttpResponseBase:
            try:
                if request.method not in methods:
                    allowed = ", ".join(methods)
                    headers = {"Allow": allowed}
                    raise Problem(405, "method_not_allowed", f"Use {allowed} here.", headers=headers)
                return door(request, **path)
            except Problem as problem:
                return problems.response(problem)
            except (DatabaseError, InterfaceError) as error:
                outage = outages.outage_of(error)
                if outage is not None or isinstance(error, OperationalError | InterfaceError):
                    log.error("database_unavailable", outage=outage, error=f"{type(error).__name__}: {error}"[:300])
                    outages.drop_read_only_connection(outage)
                    return problems.response(_unavailable(outage))
                log.error("database_refused", error=f"{type(error).__name__}: {error}"[:300], path=request.path)
                detail = "The database refused this; nothing was recorded. The operator's log says why."
                return problems.response(Problem(500, "server_error", detail))

        inner.csrf_exempt = True  # type: ignore[attr-defined]  # agents carry no cookies
        return inner

    return wrap


UNAVAILABLE: Final = Problem(
    503,
    "unavailable",
    "The database cannot take this now. Send the same request again, with the same key: what it asks is done once.",
    headers={"Retry-After": "1"},
)
_NOTHING_STORED: Final = "Nothing was stored. Send the same request again, with the same key."
_WHY: Final = {
    "read_only": f"The database is read-only at the moment. {_NOTHING_STORED}",
    "full": f"The disk of the database is full. {_NOTHING_STORED}",
}


def _unavailable(outage: outages.Outage | None) -> Problem:
    if outage is None or outage not in _WHY:
        return UNAVAILABLE
    return Problem(503, "unavailable", _WHY[outage], headers={"Retry-After": str(outages.RETRY_AFTER_S[outage])})


def by_method(**doors: Handler) -> Handler:
    """One URL, several doors."""
    allowed = ", ".join(doors)

    def dispatch(request: HttpRequest, **path: Any) -> HttpResponseBase:
        door = doors.get("GET" if request.method == "HEAD" and "GET" in doors else request.method or "")
        if door is None:
            headers = {"Allow": allowed}
            return problems.response(Problem(405, "method_not_allowed", f"Use {allowed} here.", headers=headers))
        return door(request, **path)

    dispatch.csrf_exempt = True  # type: ignore[attr-defined]  # agents carry no cookies
    return dispatch


def transact(run: Callable[[], Reply], replay: Callable[[], Reply | None]) -> Reply:
    """Run the door's transaction; again after a lost race or deadlock, from the book when its key is there already."""
    for left in reversed(range(again.TRIES)):
        try:
            with transaction.atomic(durable=True):
                return run()
        except (LostRace, Overtaken):
            if not left:
                raise UNAVAILABLE from None
        except (NotAllowed, Repeated) as ended:
            with transaction.atomic(durable=True):
                reply = replay() if isinstance(ended, Repeated) else _turned_away(ended, replay)
            if reply is not None:
                if reply.replay and reply.status >= 400:
                    raise Problem(reply.status, reply.body["code"], reply.body["detail"]) from None
                return reply
        except OperationalError as error:
            if not left or not again.asked(error):
                raise
    raise UNAVAILABLE


def _turned_away(refused: NotAllowed, replay: Callable[[], Reply | None]) -> Reply:
    """Answer an agent that may not speak here, and keep a trace; what it was answered before, it is answered again."""
    if answers.is_kept(refused.origin) and (reply := replay()) is not None:
        return reply
    entries.append([refused.draft], refused.origin.received_us)
    if refused.standing is Standing.OTHER_AGENT:
        detail = speakers.OTHER_AGENT
        return Reply(403, Problem(403, "OTHER_AGENT", detail).as_dict(), kept=False)
    body = Problem(409, "LEASE_LOST", speakers.HELD_BY_ANOTHER).as_dict()
    lease = fencing.standing(refused.origin.project, refused.session, refused.task)
    return Reply(409, body if lease is None else body | {"lease": fencing.describe(lease)}, kept=False)


def authenticated(request: HttpRequest) -> Call:
    """Who calls, by the token of the request. Raises Problem 401, 400 for a token in the address, and 403
    where it may only read.
    """
    address = request.META.get("QUERY_STRING", "")
    if "token" in request.GET or "access_token" in request.GET or tokens.SHAPE.search(address):
        raise Problem(400, "token_in_query", "Send the token in the Authorization header, never in the address.")
    token = tokens.authenticate(request.META.get("HTTP_AUTHORIZATION"))
    if token is None:
        headers = {"WWW-Authenticate": "Bearer"}
        detail = "Send a valid token as Authorization: Bearer gbk_…; this one is missing, unknown, expired or revoked."
        raise Problem(401, "unauthorized", detail, headers=headers)
    if token.scope == "audit" and request.method not in ("GET", "HEAD"):
        raise Problem(403, "read_only", "A token of scope audit only reads; issue one of scope agent for this.")
    return Call(request, token, now_us())


def _idempotency_key(request: HttpRequest, redaction_key: bytes | None) -> str:
    key: str | None = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if not key:
        detail = "Send an Idempotency-Key header of 1 to 64 characters, a new one for every new command."
        raise Problem(400, "idempotency_key_missing", detail)
    if not _KEY.fullmatch(key) or tokens.SHAPE.search(key):
        detail = f"An Idempotency-Key is 1 to {KEY_CHARACTERS} visible ASCII characters; a UUID does well."
        raise Problem(400, "idempotency_key_invalid", detail)
    # It becomes the id of the journal's entry. Other secrets than our tokens may look like one by chance.
    return key if redaction_key is None else redaction.clean_key(key, redaction_key)


def read_object(request: HttpRequest) -> strict.Parsed:
    """The JSON object in the body, strictly read; nothing at all is an empty one."""
    raw = strict.read_body(request, limit=ITEM_BYTES, allow_empty=True)
    if not raw:
        return strict.Parsed({}, "{}")
    strict.check_content_type(request, JSON)
    return strict.parse_object(raw)


def _redacted(call: Call, parsed: strict.Parsed) -> dict[str, Any]:
    key = call.redaction_key
    if key is None or not redaction.might_hold_secret(parsed.text):
        return parsed.value
    value, call.redactions = redaction.redact(parsed.value, key)
    return cast(dict[str, Any], value)


def convert(value: dict[str, Any], shape: type[S]) -> S:
    """Read `value` as `shape`. Problem 422 with the JSON pointer of the fault."""
    try:
        return msgspec.convert(value, shape, strict=True)
    except msgspec.ValidationError as error:
        said = str(error)
        what, _, where = said.partition(" - at `")
        what = next((words for pattern, words in PATTERNS_IN_WORDS.items() if what.endswith(repr(pattern))), what)
        # Of a name that the sender chose it says `[...]`, or `key` in `…`: we point to what holds it.
        path = where.removeprefix("key` in `").partition("[...]")[0]
        pointer = path.rstrip("`").lstrip("$").replace("[", ".").replace("]", "").replace(".", "/")
        raise Problem(422, "invalid", f"{what}. Send what the API's description asks for.", pointer=pointer) from None


def as_json(status: int, body: Any) -> HttpResponse:
    """A JSON answer, a refusal in the form of a problem; authenticated, so never cached."""
    response = HttpResponse(exact.dumps(body, orjson.OPT_PASSTHROUGH_DATACLASS), status=status)
    response["Content-Type"] = "application/json" if status < 400 else problems.CONTENT_TYPE
    response["Content-Length"] = str(len(response.content))  # else the server answers in chunks
    response["Cache-Control"] = "no-store"
    return response
