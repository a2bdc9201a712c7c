"""Schemas of requests about messages and capacity."""

from typing import Annotated

import msgspec
from msgspec import Meta

from api.schemas.core import _PLAIN, Count, Id, Key, Strict
from sessions.messages import MAX_BODY_CHARACTERS, MAX_SUBJECT_CHARACTERS


class SendMessage(Strict):
    """POST /messages. `to` is the name of an agent, or `shared` for all agents."""

    to: Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
    body: Annotated[str, Meta(min_length=1, max_length=MAX_BODY_CHARACTERS)]
    subject: Annotated[str, Meta(max_length=MAX_SUBJECT_CHARACTERS)] = ""
    session: Key | None = None
    in_reply_to: Id | None = None
    lease_epoch: Count | None = None


class ReadMessage(Strict):
    """POST /messages/{id}/read. `lease_epoch` refers to the session of the message."""

    lease_epoch: Count | None = None


class ReportCapacity(Strict):
    """POST /capacity. Without `session`, the report covers all sessions.

    Send at least one of `context_left_tokens`, `context_total_tokens`, `time_left_s` and `queue`.
    """

    session: Key | None = None
    context_left_tokens: Count | None = None
    context_total_tokens: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    time_left_s: Annotated[int, Meta(ge=0, le=366 * 24 * 3600)] | None = None
    queue: Count | None = None
    lease_epoch: Count | None = None


# Prepared at import: see api/schemas/core.py.
for _shape in (SendMessage, ReadMessage, ReportCapacity):
    msgspec.json.Decoder(_shape)
