"""CloudEvents 1.0 as items of the evidence lane: structured, batched and binary.

A type `dev.gatebook.<kind>` is a fact of that kind, with its fields in `data`. An event of any
other type is stored as it was sent, under the kind `cloudevent.received`, and changes no state. An
event's id is that of its source and id, so an event that is sent again is recorded once.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

from api.problems import Problem
from api.strictjson import parser, request_body
from api.strictjson.canonical_json import to_canonical_text
from api.strictjson.parser import ItemFault, Parsed

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
TYPE_PREFIX: Final = "dev.gatebook."
RECEIVED_KIND: Final = "cloudevent.received"
# Attributes that name the session of an event, the first that is set.
SESSION_ATTRIBUTES: Final = ("gatebooksession", "sessionid", "session", "conversationid")
_HEADER: Final = "HTTP_CE_"
_REQUIRED: Final = ("specversion", "id", "source", "type")
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]{1,64}")
_PLAIN: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TEXTS: Final = ("subject", "datacontenttype", "dataschema")
_DATA: Final = ("data", "data_base64")
_MAX_SESSION: Final = 200
_MAX_SOURCE: Final = 160
# What the event itself gives; `data` may not say it a second time.
_GIVEN: Final = ("id", "kind", "source", "occurred_us")


def read_binary_event(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the event of a request in binary mode: `ce-` headers and the body as data.

    Problems 422 for a header that is not valid, 4xx for a body that is not valid JSON.
    """
    event: dict[str, Any] = {}
    for name, value in headers.items():
        if name.startswith(_HEADER):
            attribute = name.removeprefix(_HEADER).lower()
            if attribute in ("data", "data_base64", "datacontenttype"):
                raise _build_problem(f"The header `ce-{attribute}` is not allowed. Omit it.")
            event[attribute] = _decode_header(attribute, value)
    content_type = headers.get("CONTENT_TYPE", "")
    if content_type:
        event["datacontenttype"] = content_type
    if body:
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type in ("", "application/json", "text/json") or media_type.endswith("+json"):
            request_body.check_utf8(body)
            members = parser.parse_object(b'{"data":' + body + b"}").value
            if len(members) != 1:
                raise Problem(422, "json_syntax", "The body is not JSON. Send one JSON value.")
            event["data"] = members["data"]
        else:
            event["data_base64"] = base64.b64encode(body).decode()
    return event


def to_items(events: list[Parsed | ItemFault]) -> list[Parsed | ItemFault]:
    """Turn events into items as `parse_items` takes them; an invalid event becomes a fault."""
    items: list[Parsed | ItemFault] = []
    for index, event in enumerate(events):
        if isinstance(event, ItemFault):
            items.append(event)
            continue
        try:
            item = build_item(event.value)
            items.append(Parsed(item, to_canonical_text(item)))
        except Problem as problem:
            identity = event.value.get("id")
            name = identity if isinstance(identity, str) and len(identity) <= 64 else None
            items.append(
                ItemFault(index, name, problem.code, problem.detail, problem.pointer, "invalid")
            )
    return items


def build_item(event: dict[str, Any]) -> dict[str, Any]:
    """Return the item that an event is. Problem 422 for an event that is not valid."""
    event = {name: value for name, value in event.items() if value is not None or name in _DATA}
    _check_event(event)
    attributes = {name: value for name, value in event.items() if name not in _DATA}
    item: dict[str, Any] = {"id": _derive_id(event["source"], event["id"])}
    if "time" in event:
        item["occurred_us"] = _parse_time(event["time"])
    if len(event["source"]) <= _MAX_SOURCE:
        item["source"] = event["source"]
    session = next((event[name] for name in SESSION_ATTRIBUTES if event.get(name)), None)
    if event["type"].startswith(TYPE_PREFIX):
        fields = event.get("data", {})
        if not isinstance(fields, dict):
            raise _build_problem(
                f"`data` of a type `{TYPE_PREFIX}…` is not an object. Send the fields of the kind.",
                "/data",
            )
        for name in _GIVEN:
            if name in fields:
                raise _build_problem(
                    f"`data` contains `{name}`. Send it as an attribute of the event.",
                    f"/data/{name}",
                )
        item |= {"kind": event["type"].removeprefix(TYPE_PREFIX), **fields}
        item["cloudevent"] = attributes
    else:
        item |= {"kind": RECEIVED_KIND, "cloudevent": event}
    item.setdefault("session", _name_session(session, event["source"]))
    return item


def _check_event(event: dict[str, Any]) -> None:
    for name in _REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not _PLAIN.fullmatch(value):
            raise _build_problem(f"`{name}` is missing or not plain text. Send it.", f"/{name}")
    if event["specversion"] != "1.0":
        raise _build_problem("`specversion` is not supported. Send 1.0.", "/specversion")
    for name, value in event.items():
        if name in _DATA:
            continue
        if not _ATTRIBUTE.fullmatch(name):
            raise _build_problem(
                "An attribute's name is not valid. Use only a to z and 0 to 9.", f"/{name[:64]}"
            )
        if not isinstance(value, str if name in _TEXTS else str | int | bool):
            allowed = "text" if name in _TEXTS else "text, an integer or a boolean"
            raise _build_problem(f"The attribute `{name}` is not {allowed}.", f"/{name}")
    packed = event.get("data_base64", "")
    if not isinstance(packed, str) or not _BASE64.fullmatch(packed):
        raise _build_problem("`data_base64` is not base64. Encode the bytes.", "/data_base64")
    if "data" in event and "data_base64" in event:
        raise _build_problem("`data` and `data_base64` exclude each other. Send only one.", "/data")


def _derive_id(source: str, identity: str) -> str:
    digest = hashlib.sha256(to_canonical_text([source, identity]).encode()).hexdigest()
    return f"ce:{digest[:60]}"


def _name_session(session: Any, source: str) -> str:
    """Return the session's key: the attribute, otherwise the source; a digest if it is no key."""
    name = str(session) if session is not None else source
    if len(name) <= _MAX_SESSION and _PLAIN.fullmatch(name):
        return name
    return f"ce:{hashlib.sha256(name.encode()).hexdigest()}"


def _parse_time(value: Any) -> int:
    """Return an RFC 3339 time in microseconds since the epoch."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        seconds, fraction, zone = match.groups()
        try:
            moment = datetime.fromisoformat(
                seconds.upper() + ("+00:00" if zone in "Zz" else zone)
            ).astimezone(UTC)
        except (ValueError, OverflowError):
            moment = None
        if moment is not None and moment.year >= 1970:
            whole_us = int(moment.timestamp()) * 1_000_000
            return whole_us + int((fraction or "0").ljust(9, "0")[:6])
    raise _build_problem("`time` is not a time of RFC 3339. Send 2026-11-23T12:00:00Z.", "/time")


def _decode_header(attribute: str, value: str) -> str:
    """Return the value of a `ce-` header: unquoted, then percent-decoded as UTF-8."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        # Bytes above 127 are not allowed in headers, but some clients send UTF-8.
        return unquote(value.encode("latin-1").decode(), errors="strict")
    except (UnicodeDecodeError, UnicodeEncodeError):
        raise _build_problem(
            f"The header `ce-{attribute}` is not valid. Percent-encode UTF-8.", f"/{attribute}"
        ) from None


def _build_problem(detail: str, pointer: str | None = None) -> Problem:
    return Problem(422, "cloudevent_invalid", detail, pointer=pointer)
