"""Valid rows of leases, messages, working state, breakers and stuck episodes (see
tests/ledger/rows_by_hand.py)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django.db import models

from accounts.models import Agent
from db.ids import new_uuid7
from investigation.models import (
    EffectText,
    FieldCoverage,
    FieldValue,
    FirstOccurrence,
    ImportedBundle,
    ImportedGate,
    RepeatedOccurrence,
)
from journal.models import Entry
from ledger.models import (
    Breaker,
    Effect,
    SameCall,
    UsedName,
    UsedNamePlan,
    UsedNameProgress,
)
from monitoring.models import EffectDay, EffectHour, JobHeartbeat, StuckEpisode, StuckLimit
from proofs.models import Anchor, SealedEntry, SealProgress, SigningKey, Tile, TreeHead
from sessions.models import (
    Capacity,
    Checkpoint,
    Decision,
    Handoff,
    HeartbeatMinute,
    Lease,
    Message,
    MessageFile,
    MessageRead,
    ObservedFact,
    Session,
)

if TYPE_CHECKING:
    from tests.ledger.rows_by_hand import World


def _opened(world: "World") -> dict[str, Any]:
    return {"id": new_uuid7(), "project": world.project, "opened_position": world.new()}


def _used_name(world: "World") -> dict[str, Any]:
    name = f"northwind-{world.new()}.example"
    return {
        "project": world.project,
        "kind": "domain",
        "name": name,
        "skeleton": name,
        "first_position": 1,
        "last_position": 1,
        "first_us": 1,
        "last_us": 1,
    }


def _reported(world: "World") -> dict[str, Any]:
    return {
        "project": world.project,
        "session": world.session,
        "position": world.new(),
        "reported_position": 2,
    }


RECOVERY: Final[dict[type[models.Model], Callable[["World"], dict[str, Any]]]] = {
    Lease: lambda w: {
        **_opened(w),
        "kind": "session",
        "subject": f"subject {w.new()}",
        "session": w.session,
        "agent": w.agent,
        "process": "p",
        "ttl_s": 60,
        "acquired_at_us": 1,
        "heartbeat_at_us": 1,
        "progress_at_us": 1,
        "expires_at_us": 2,
        "dead_at_us": 3,
        "wedged_at_us": 3,
    },
    HeartbeatMinute: lambda w: {"lease": w.lease, "minute": w.new()},
    Message: lambda w: {**_opened(w), "size": 1, "sent_at_us": 1},
    MessageRead: lambda w: {"message": w.message, "agent": w.write(Agent), "read_at_us": 1},
    MessageFile: lambda w: {"message": w.message, "directory": new_uuid7(), "file": "m.md"},
    Capacity: lambda w: {
        "project": w.project,
        "agent": w.write(Agent),
        "session": w.session,
        "reported_at_us": 1,
        "position": 1,
    },
    Checkpoint: lambda w: {
        **_opened(w),
        "session": w.session,
        "size": 1,
        "mark": "m",
        "created_at_us": 1,
    },
    Decision: lambda w: {
        **_opened(w),
        "session": w.session,
        "key": f"key {w.new()}",
        "created_at_us": 1,
    },
    Handoff: lambda w: {
        **_opened(w),
        "session": w.session,
        "key": f"key {w.new()}",
        "created_at_us": 1,
    },
    ObservedFact: lambda w: {
        "project": w.project,
        "session": w.session,
        "name": f"name {w.new()}",
        "source": "a file",
        "digest": "d",
        "mark": "m",
        "position": 1,
        "opened_position": 1,
        "observed_at_us": 1,
        "fresh_until_us": 2,
    },
    Breaker: lambda w: {"project": w.project, "tool": f"tool {w.new()}"},
    StuckEpisode: lambda w: {
        "project": w.project,
        "rule": "S1",
        "subject": new_uuid7(),
        "since_us": 1,
        "seen_us": 5,
        "seen_sweep": 1,
    },
    StuckLimit: lambda w: {
        "project": w.project,
        "agent": w.agent,
        "name": f"limit {w.new()}",
        "value": 1,
    },
    ImportedBundle: lambda w: {
        "project": w.project,
        "session": w.write(Session),
        "sha256": f"{w.new():064x}",
        "version": 1,
        "document": {},
        "cut_position": 1,
        "cut_us": 1,
        "imported_us": 1,
        "position": 1,
    },
    ImportedGate: lambda w: {
        "id": new_uuid7(),
        "project": w.project,
        "effect": w.write(Effect),
        "opened_position": w.new(),
        "document": {},
    },
    SameCall: lambda w: {
        "project": w.project,
        "effect": w.write(Effect),
        "session": w.session,
        "other": w.write(Effect),
        "other_session": w.write(Session),
        "position": w.new(),
    },
    EffectHour: lambda w: {
        "project": w.project,
        "hour_us": w.new() * 3_600_000_000,
        "effects": 1,
        "first_position": 1,
    },
    EffectDay: lambda w: {
        "project": w.project,
        "agent": w.agent,
        "tool": "git.push",
        "day_us": w.new() * 86_400_000_000,
        "effects": 1,
    },
    JobHeartbeat: lambda w: {"name": f"job {w.new()}", "heartbeat_us": 1},
    EffectText: lambda w: {"project": w.project, "position": w.new(), "words": " 0000push "},
    FirstOccurrence: lambda w: {**_reported(w), "digest": w.new()},
    FieldValue: lambda w: {
        "project": w.project,
        "effect": w.write(Effect),
        "position": w.new(),
        "plan_position": 1,
        "field": "ticket",
        "value": "OPS-204",
    },
    FieldCoverage: lambda w: {"project": w.project, "tool": f"t{w.new()}", "complete_from": 0},
    UsedName: _used_name,
    UsedNamePlan: lambda w: {"name": w.write(UsedName), "position": 7},
    UsedNameProgress: lambda _: {"id": 1, "position": 0},
    SealedEntry: lambda w: {
        "log_index": SealedEntry.objects.count(),
        "entry": w.write(Entry),
    },
    Tile: lambda _: {"level": 0, "index": 0, "hashes": b"h" * 32},
    TreeHead: lambda _: {
        "id": TreeHead.objects.count() + 1,
        "size": 0,
        "root": b"r" * 32,
        "made_at_us": 1,
        "key_name": "gatebook/1",
        "key_id": "0badcafe",
        "note": "a note",
    },
    SigningKey: lambda w: {
        "name": "gatebook/1",
        "key_id": f"{w.new():08x}",
        "public_key": b"k" * 32,
        "first_used_us": 5,
    },
    SealProgress: lambda _: {"id": 1, "position": 0},
    Anchor: lambda w: {
        "tree_head": w.write(TreeHead),
        "name": "file",
        "kind": "file",
        "anchored_at_us": 1,
        "receipt": "{}",
    },
    RepeatedOccurrence: lambda w: {
        **_reported(w),
        "sort": "call",
        "digest": 1,
        "repeat_position": 3,
        "nth": 1,
    },
}
