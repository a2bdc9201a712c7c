"""Valid rows of erasure requests, legal holds and retention sets (see tests/ledger/rows_by_hand.py)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django.db import models

from erasure.models import ErasureRequest, LegalHold
from retention.models import RetentionSet

if TYPE_CHECKING:
    from tests.ledger.rows_by_hand import World

ERASURE: Final[dict[type[models.Model], Callable[["World"], dict[str, Any]]]] = {
    ErasureRequest: lambda w: {
        "project": w.project,
        "subject_kind": "words",
        "words": ["jane@customer.example"],
        "reason": "ticket 88",
        "asked_by": w.user,
        "asked_at_us": 5,
        "requested_position": w.new(),
    },
    LegalHold: lambda w: {
        "project": w.project,
        "kind": "session",
        "session": w.session,
        "reason": "case 12",
        "set_by": w.user,
        "set_at_us": 5,
        "set_position": w.new(),
    },
    RetentionSet: lambda w: {
        "project": w.project,
        "name": "acme",
        "version": w.new(),
        "text": "name: acme",
        "sha256": "0" * 64,
        "rules": {"classes": [], "rules": [], "default": "forever"},
        "loaded_by": "gatebook",
        "loaded_at_us": 5,
    },
}
