"""Endpoints that take webhooks of code hosts.

The signature decides which source a request belongs to. A delivery is stored before it is answered;
what follows from it is worked out afterwards, and again later if that fails.
"""

import re
from typing import Final
from uuid import UUID

import structlog
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from api.endpoint import Handler, build_json_response, handle_errors, transact
from api.idempotency import Reply
from api.problems import Problem
from api.strictjson import parser
from db.clock import now_us
from hooks.code_hosts import host_deliveries, host_events, sources
from hooks.code_hosts.host_deliveries import ReceivedDelivery
from hooks.code_hosts.signatures import CHECKS, GetHeader
from hooks.code_hosts.source_addresses import (
    MAX_COMMON_BYTES,
    MAX_DELIVERY_BYTES,
    SourceAddress,
    find_most_delivery_bytes,
)
from hooks.models import CodeHostEvent, CodeHostSource

log = structlog.get_logger("gatebook.code_hosts")

_JSON: Final = frozenset({"application/json"})
_DELIVERY_KEY: Final = re.compile(r"[!-~]{1,200}")
_EVENT_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,63}")
# Headers with the delivery's id, the first that is sent; and the header with the event.
_KEY_HEADERS: Final = {
    "github": ("X-GitHub-Delivery",),
    "gitlab": ("Idempotency-Key", "webhook-id", "X-Gitlab-Event-UUID"),
}
_EVENT_HEADERS: Final = {"github": "X-GitHub-Event", "gitlab": "X-Gitlab-Event"}
_TOO_LARGE: Final = (
    f"The delivery is larger than {MAX_DELIVERY_BYTES} bytes, or than {MAX_COMMON_BYTES} bytes at"
    " the common address. Use the webhook's own address, and choose fewer events."
)
_SIGNATURE_HEADERS: Final = {
    "github": "X-Hub-Signature-256",
    "gitlab": "X-Gitlab-Token or webhook-signature",
}


def take_webhooks(host: str) -> Handler:
    """Make the endpoint of one code host."""

    def take_webhook(request: HttpRequest, source: UUID | None = None) -> HttpResponseBase:
        return _take_delivery(request, host, source)

    return handle_errors("POST")(take_webhook)


def _take_delivery(request: HttpRequest, host: str, source: UUID | None) -> HttpResponse:
    tried = _load_sources(host, source)
    raw = _read_raw_body(request, SourceAddress(host, source))
    header = _header_reader(request)
    signed = _find_signed_source(host, tried, header, raw)
    if not signed.enabled:
        raise Problem(
            403,
            "source_disabled",
            "This webhook is disabled in Gatebook. Enable it at /settings/code-hosts/, or remove"
            " the webhook.",
        )
    parser.check_content_type(request, _JSON)
    received = ReceivedDelivery(
        _read_delivery_key(host, header),
        _read_event_name(host, header),
        raw,
        parser.parse_object(raw).value,
    )
    fresh: list[CodeHostEvent] = []

    def run() -> Reply:
        fresh.clear()
        delivery, event = host_deliveries.record_delivery(signed, received)
        if event is not None:
            fresh.append(event)
        body = {
            "delivery": str(delivery),
            "position": delivery.position,
            "event": delivery.event,
            "understood": delivery.understood,
        }
        return Reply(200, body, kept=False)

    reply = transact(run, lambda: None)
    for event in fresh:
        _compare_now(event)
    return build_json_response(reply.status, reply.body)


def _compare_now(event: CodeHostEvent) -> None:
    """Compare a stored event at once; if that fails, the outbox does it later."""
    try:
        host_events.compare_event(event.id)
    except Exception as error:  # the delivery is stored and must be answered with 2xx
        log.warning(
            "event_not_compared",
            code_host_event=str(event.id),
            error=f"{type(error).__name__}: {error}"[:200],
        )


def _load_sources(host: str, source: UUID | None) -> list[CodeHostSource]:
    tried = list(sources.find_sources(host, source))
    if not tried:
        detail = (
            "Gatebook has no such webhook. An administrator adds one at /settings/code-hosts/ and"
            " copies its address."
        )
        raise Problem(404, "not_found", detail)
    if len(tried) > sources.MAX_SOURCES_TRIED:
        detail = (
            f"More than {sources.MAX_SOURCES_TRIED} webhooks exist, so this address cannot find"
            " the right one. Use the webhook's own address from /settings/code-hosts/."
        )
        raise Problem(404, "not_found", detail)
    return tried


def _read_raw_body(request: HttpRequest, address: SourceAddress) -> bytes:
    if request.META.get("HTTP_CONTENT_ENCODING", "").strip().lower() not in ("", "identity"):
        raise Problem(
            415,
            "unsupported_encoding",
            "The signature covers the bytes as sent. Send the body uncompressed.",
        )
    try:
        return parser.read_body(request, limit=find_most_delivery_bytes(address))
    except Problem as problem:
        if problem.status == 413:
            problem.detail = _TOO_LARGE
        raise


def _header_reader(request: HttpRequest) -> GetHeader:
    return lambda name: str(request.META.get(f"HTTP_{name.upper().replace('-', '_')}", ""))


def _find_signed_source(
    host: str, tried: list[CodeHostSource], header: GetHeader, raw: bytes
) -> CodeHostSource:
    now = now_us()
    matches = [
        source
        for source in tried
        if CHECKS[host](header, raw, sources.list_accepted_secrets(source, now))
    ]
    if matches:
        return matches[0]
    sources.count_refusals(tried)
    log.warning("webhook_refused", host=host, sources=[str(source.id) for source in tried][:3])
    detail = (
        f"The signature ({_SIGNATURE_HEADERS[host]}) is missing or wrong. Nothing was stored. Set"
        " the webhook's secret to the one that Gatebook showed for it, or rotate it at"
        " /settings/code-hosts/."
    )
    raise Problem(401, "signature_invalid", detail)


def _read_delivery_key(host: str, header: GetHeader) -> str:
    names = _KEY_HEADERS[host]
    if header("webhook-signature").strip():
        names = ("webhook-id",)  # the only id that the signature covers
    key = next((value for name in names if (value := header(name).strip())), "")
    if not _DELIVERY_KEY.fullmatch(key):
        detail = (
            f"The delivery's id ({' or '.join(names)}) is missing or invalid. Send 1 to 200"
            " visible ASCII characters, the same when a delivery is sent again."
        )
        raise Problem(400, "delivery_invalid", detail)
    return key


def _read_event_name(host: str, header: GetHeader) -> str:
    name = header(_EVENT_HEADERS[host]).strip()
    if not _EVENT_NAME.fullmatch(name):
        raise Problem(
            400,
            "delivery_invalid",
            f"The header {_EVENT_HEADERS[host]} is missing or invalid. It names the event.",
        )
    return name
