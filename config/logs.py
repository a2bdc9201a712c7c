"""How Gatebook logs: one JSON object per line, with no control character in it.

Every value is written as an ASCII JSON string, so what an agent or a browser sends (line breaks, terminal escapes,
direction marks) arrives in a log as `\\n`, `\\u001b`, `\\u202e` and can neither forge a line nor drive a terminal.
"""

import json
import logging
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

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


def _render(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return to_line(event)


class JSONFormatter(structlog.stdlib.ProcessorFormatter):
    """Formats both structlog events and the records of the standard library (Django, Celery, granian)."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        super().__init__(
            foreign_pre_chain=[*SHARED, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _render,
            ],
        )


def logging_config(level: str) -> Mapping[str, Any]:
    """Return the LOGGING setting: everything from `level` up goes to standard error as JSON lines."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JSONFormatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django hangs handlers of its own on these two; ours replace them.
            "django": {"handlers": ["stderr"], "level": level, "propagate": False},
            "django.server": {"handlers": ["stderr"], "level": level, "propagate": False},
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
