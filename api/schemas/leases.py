"""Schemas of requests about leases, heartbeats and claims."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from api.schemas import core
from api.schemas.core import Count, Id, Key, Labels, Strict

Process = Annotated[str, Meta(min_length=1, max_length=64, pattern=core._PLAIN)]
Seconds = Annotated[int, Meta(ge=5, le=3600)]
Token = Annotated[str, Meta(max_length=200, pattern=core._PLAIN)]
Resource = Annotated[str, Meta(min_length=1, max_length=300, pattern=core._PLAIN)]
Repository = Annotated[str, Meta(min_length=1, max_length=200, pattern=core._PLAIN)]
Kinds = Annotated[list[Literal["task", "session"]], Meta(min_length=1, max_length=2)]
QuietSeconds = Annotated[int, Meta(ge=0, le=3600)]


class AcquireLease(Strict):
    """POST /leases. Send exactly one of `session`, `task` and `resource`.

    `to_compensate` also leases a session that has ended, to compensate its effects. New effects
    cannot be planned there.
    """

    process: Process
    session: Key | None = None
    task: Id | None = None
    resource: Resource | None = None
    ttl_s: Seconds = 60
    takeover: bool = False
    to_compensate: bool = False


class RenewLease(Strict):
    """POST /leases/{id}/renew"""

    epoch: Count
    ttl_s: Seconds | None = None
    progress: Token | None = None


class ReleaseLease(Strict):
    """POST /leases/{id}/release"""

    epoch: Count


class HeartbeatEntry(Strict):
    """Heartbeat of one lease. `progress` counts if it differs from the last one."""

    lease: Id
    epoch: Count
    progress: Token | None = None
    quiet_s: QuietSeconds | None = None


class Heartbeats(Strict):
    """POST /heartbeats"""

    heartbeats: Annotated[list[HeartbeatEntry], Meta(min_length=1, max_length=1000)]


class Claim(Strict):
    """POST /claims"""

    process: Process
    kinds: Kinds | None = None  # absent: both
    repository: Repository | None = None
    labels: Labels = {}
    ttl_s: Seconds = 60


# Prepared at import: see api/schemas/core.py.
for _shape in tuple(globals().values()):
    if isinstance(_shape, type) and issubclass(_shape, msgspec.Struct):
        msgspec.json.Decoder(_shape)
