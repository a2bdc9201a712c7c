"""How Gatebook logs: one JSON object per line, with no control character in it.

Every value is written as an ASCII JSON string, so what an agent or a browser sends (line breaks, terminal escapes,
direction marks) arrives in a log as `\\n`, `\\u001b`, `\\u202e` and can neither forge a line nor drive a terminal.

An exception is told by its type and places, and by little of its message: libraries put into messages what they were
working on, a template engine the whole context, a database the whole row.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import Any

import structlog

MESSAGE_CHARACTERS = 200
FRAMES = 30  # the innermost of an exception
CHAIN = 5  # exceptions of which each caused the one before

SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


_TOKEN = re.compile(r"(gbk_[a-z0-9]{8})_[A-Za-z0-9_-]{43}")


def to_line(value: object, **_: object) -> str:
    """Return `value` as one line of ASCII JSON without control characters; what JSON does not know becomes its repr.

    An agent's token that strayed into it, by an address say, is cut down to its public part.
    """
    # json leaves DEL alone: it is ASCII and needs no escape in a string, but a terminal acts on it.
    line = json.dumps(value, ensure_ascii=True, default=repr).replace("\x7f", "\\u007f")
    return _TOKEN.sub(r"\1_...", line)


def _exceptions(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put `exception` in the place of `exc_info`: a list, what was raised first, then what caused it."""
    found = event.pop("exc_info", None)
    if isinstance(found, tuple):
        found = found[1]
    error = found if isinstance(found, BaseException) or not found else sys.exc_info()[1]
    if isinstance(error, BaseException):
        event["exception"] = described(error)
    return event


def described(error: BaseException) -> list[dict[str, Any]]:
    """Type, the beginning of the message, template and line, and places (innermost last) of `error` and what caused it.

    Where a template was being rendered there is no message: it would speak of values that the page shows.
    """
    from django.template import VariableDoesNotExist  # settings load this module

    chain = list(_chain(error))
    templates = [_template(one.__traceback__) for one in chain]
    told: list[dict[str, Any]] = []
    for one, template in zip(chain, templates, strict=True):
        said = "" if any(templates) else next(iter(str(one).splitlines()), "")
        if isinstance(one, VariableDoesNotExist):
            said = f"no {one.params[0]}"  # the name; the second is all that it was looked up in
        row: dict[str, Any] = {"type": f"{type(one).__module__}.{type(one).__qualname__}"}
        if said:
            row["message"] = said[:MESSAGE_CHARACTERS]
        if template:
            row["template"] = template
        frames = traceback.extract_tb(one.__traceback__)[-FRAMES:]
        told.append({**row, "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]})
    return told


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen and len(seen) < CHAIN:
        yield error
        seen.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _template(trace: TracebackType | None) -> str:
    """Name and line of the innermost template node that was being rendered, or ""."""
    from django.template.base import Node

    place = ""
    for frame, _ in traceback.walk_tb(trace):
        node = frame.f_locals.get("self")
        if isinstance(node, Node) and getattr(node, "origin", None) is not None and node.token is not None:
            place = f"{node.origin.template_name!s}:{node.token.lineno}"
    return place


def _render(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return to_line(event)


class JSONFormatter(structlog.stdlib.ProcessorFormatter):
    """Formats both structlog events and the records of the standard library (Django, Celery)."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        super().__init__(
            foreign_pre_chain=[*SHARED, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _exceptions,
                _render,
            ],
        )


class BadRequests(logging.Filter):
    """Takes the traceback from what Django logs of a request that it answered 400: the fault is the client's.

    Whoever can reach the port can cause such lines, so each is one short line, and no alarm.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        security = record.name.startswith("django.security.")
        if security or (record.name == "django.request" and getattr(record, "status_code", 0) == 400):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.name == "django.security.DisallowedHost":
            host = str(getattr(record, "request", None) and record.request.META.get("HTTP_HOST", ""))  # type: ignore[attr-defined]  # Django's own
            record.msg, record.args = (
                "Refused a request for the host %s. GATEBOOK_HOSTS does not list it.",
                (host[:200],),
            )
        return True


def logging_config(level: str) -> Mapping[str, Any]:
    """Return the LOGGING setting: everything from `level` up goes to standard error as JSON lines."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JSONFormatter}},
        "filters": {"bad_requests": {"()": BadRequests}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "filters": ["bad_requests"]}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django hangs handlers of its own on these two; ours replace them.
            "django": {"handlers": ["stderr"], "level": level, "propagate": False},
            "django.server": {"handlers": ["stderr"], "level": level, "propagate": False},
            # Sign-ins are told by sessions/sign_ins.py, with the name.
            "axes": {"level": "ERROR"},
            # A line for every tick of every chore would bury the rest.
            "celery": {"level": "WARNING"},
            "kombu": {"level": "ERROR"},
        },
    }


def configure_structlog() -> None:
    """Send `structlog.get_logger()` through the standard library, so both kinds share one format and one level."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.captureWarnings(True)
