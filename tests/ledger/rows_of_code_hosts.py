"""Valid rows of code hosts: sources, deliveries, events, matches and identities."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django.db import models

from hooks.models import (
    AgentIdentity,
    CodeHostDelivery,
    CodeHostEvent,
    CodeHostSource,
    EventMatch,
)
from ledger.models import Effect

if TYPE_CHECKING:
    from tests.ledger.rows_by_hand import World

CODE_HOSTS: Final[dict[type[models.Model], Callable[["World"], dict[str, Any]]]] = {
    CodeHostSource: lambda w: {
        "project": w.project,
        "host": "github",
        "name": f"acme {w.new()}",
        "created_by": "p_1",
        "created_at_us": 1,
    },
    CodeHostDelivery: lambda w: {
        "project": w.project,
        "source": w.write(CodeHostSource),
        "delivery_key": f"d-{w.new()}",
        "event": "push",
        "body_digest": "0" * 64,
        "position": w.new(),
        "received_us": 1,
    },
    CodeHostEvent: lambda w: {
        "project": w.project,
        "delivery": w.write(CodeHostDelivery),
        "kind": "push",
        "facts": "{}",
        "position": w.new(),
        "occurred_us": 1,
        "received_us": 1,
        "settle_by_us": 2,
    },
    EventMatch: lambda w: {
        "project": w.project,
        "event": w.write(CodeHostEvent),
        "effect": w.write(Effect),
        "rule": "push_ref_after",
        "compared": "[]",
        "status": "candidate",
        "position": w.new(),
        "made_us": 1,
    },
    AgentIdentity: lambda w: {
        "project": w.project,
        "agent": w.agent,
        "host": "github",
        "kind": "login",
        "value": f"bot-{w.new()}",
        "created_by": "p_1",
        "created_at_us": 1,
    },
}
