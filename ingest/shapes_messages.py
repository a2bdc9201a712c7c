"""What agents may send each other, and what they may say of their capacity, as typed shapes."""

from typing import Annotated

import msgspec
from msgspec import Meta

from ingest.shapes import _PLAIN, Count, Id, Key, Strict
from sessions.messages import MOST_CHARACTERS, MOST_SUBJECT

Tokens = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class SendMessage(Strict):
    """POST /messages: to an agent by name, or to `shared`."""

    to: Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
    body: Annotated[str, Meta(min_length=1, max_length=MOST_CHARACTERS)]
    subject: Annotated[str, Meta(max_length=MOST_SUBJECT)] = ""
    session: Key | None = None
    in_reply_to: Id | None = None
    lease_epoch: Count | None = None


# Prepared before the first request: see ingest/shapes.py.
for _shape in (SendMessage,):
    msgspec.json.Decoder(_shape)
