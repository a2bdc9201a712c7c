"""Logging: one JSON object per line, without control characters.

Every value is an ASCII JSON string. Line breaks, terminal escapes and direction marks from agents
and browsers become `\\n`, `\\u001b`, `\\u202e`, and can neither forge a line nor control a
terminal.

An exception is logged by type and location, with little of its message: libraries put their data
into messages, a template engine the whole context, a database the whole row.
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
MAX_FRAMES = 30  # the innermost frames of an exception
MAX_CAUSES = 5  # exceptions, each the cause of the one before

SHARED_PROCESSORS: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


_TOKEN = re.compile(r"(gbk_[a-z0-9]{8})_[A-Za-z0-9_-]{43}")


def to_json_line(value: object, **_: object) -> str:
    """Return `value` as one line of ASCII JSON without control characters.

    Values that JSON does not support become their repr. An agent's token, for example in an
    address, is cut to its public part.
    """
    # json does not escape DEL, which is ASCII, but a terminal acts on it.
    line = json.dumps(value, ensure_ascii=True, default=repr).replace("\x7f", "\\u007f")
    return _TOKEN.sub(r"\1_...", line)


def _exceptions(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace `exc_info` by `exception`: a list, starting with the raised exception."""
    info = event.pop("exc_info", None)
    if isinstance(info, tuple):
        info = info[1]
    error = info if isinstance(info, BaseException) or not info else sys.exc_info()[1]
    if isinstance(error, BaseException):
        event["exception"] = describe_exception(error)
    return event


def describe_exception(error: BaseException) -> list[dict[str, Any]]:
    """Describe `error` and its causes: type, message, template line and stack.

    The innermost frame is last.

    Only the beginning of a message is kept. While a template is rendered there is no message,
    because it would contain values of the page.
    """
    from django.template import (
        VariableDoesNotExist,
    )  # imported late, because settings import this module

    chain = list(_chain(error))
    templates = [_template(raised.__traceback__) for raised in chain]
    rows: list[dict[str, Any]] = []
    for raised, template in zip(chain, templates, strict=True):
        message = "" if any(templates) else next(iter(str(raised).splitlines()), "")
        if isinstance(raised, VariableDoesNotExist):
            # Only the name: the second parameter is the whole context.
            message = f"no {raised.params[0]}"
        row: dict[str, Any] = {"type": f"{type(raised).__module__}.{type(raised).__qualname__}"}
        if message:
            row["message"] = message[:MESSAGE_CHARACTERS]
        if template:
            row["template"] = template
        frames = traceback.extract_tb(raised.__traceback__)[-MAX_FRAMES:]
        rows.append(
            {**row, "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]}
        )
    return rows


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen and len(seen) < MAX_CAUSES:
        yield error
        seen.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _template(trace: TracebackType | None) -> str:
    """Return name and line of the innermost template node being rendered, or ""."""
    from django.template.base import Node

    place = ""
    for frame, _ in traceback.walk_tb(trace):
        node = frame.f_locals.get("self")
        if (
            isinstance(node, Node)
            and getattr(node, "origin", None) is not None
            and node.token is not None
        ):
            place = f"{node.origin.template_name!s}:{node.token.lineno}"
    return place


def _render(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return to_json_line(event)


class JSONFormatter(structlog.stdlib.ProcessorFormatter):
    """Format structlog events and standard library records (Django, Celery)."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        super().__init__(
            foreign_pre_chain=[*SHARED_PROCESSORS, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _exceptions,
                _render,
            ],
        )


class BadRequestFilter(logging.Filter):
    """Remove tracebacks from Django's logs of 400 answers: the client is at fault.

    Every client of the port can cause such lines, so each is short, and a warning.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        security = record.name.startswith("django.security.")
        if security or (
            record.name == "django.request" and getattr(record, "status_code", 0) == 400
        ):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.name == "django.security.DisallowedHost":
            request = getattr(record, "request", None)  # set by Django
            host = str(request and request.META.get("HTTP_HOST", ""))
            record.msg, record.args = (
                "Refused a request for the host %s. GATEBOOK_HOSTS does not list it.",
                (host[:200],),
            )
        return True


def logging_config(level: str) -> Mapping[str, Any]:
    """Return the LOGGING setting: JSON lines from `level` up, to standard error."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JSONFormatter}},
        "filters": {"bad_requests": {"()": BadRequestFilter}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "json",
                "filters": ["bad_requests"],
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django adds its own handlers to these two; ours replace them.
            "django": {"handlers": ["stderr"], "level": level, "propagate": False},
            "django.server": {"handlers": ["stderr"], "level": level, "propagate": False},
            # accounts/sign_ins.py logs sign-ins, with the name.
            "axes": {"level": "ERROR"},
            # A line for every tick of every job would hide the rest.
            "celery": {"level": "WARNING"},
            "kombu": {"level": "ERROR"},
        },
    }


def configure_structlog() -> None:
    """Route structlog through the standard library, for one format and one level."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED_PROCESSORS,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.captureWarnings(True)
