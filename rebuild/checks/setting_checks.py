"""Checks of settings that decide: who hears, which events count, what is held, whose password."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet

from accounts import people
from accounts.models import Person
from erasure import erasure_requests
from erasure.models import LegalHold
from hooks.code_hosts import agent_identities, sources
from hooks.models import AgentIdentity, CodeHostSource
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from monitoring.models import StuckLimit
from monitoring.stuck import rule_limits
from notifications import channels
from notifications.models import NotificationChannel
from rebuild.checks.effect_checks import load_project_names
from rebuild.project_journal import (
    EARLIER_VERSION,
    ERASED,
    NO_PERSON,
    ProjectEntry,
    load_project_entries,
)
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check

_NOT_A_REFERENCE: Final = "a number of the table, to which nothing refers"
_CHANNELS: Final = ("admin.channel_added", "admin.channel_changed", "admin.channel_removed")
_SOURCES: Final = ("admin.source_added", "admin.source_rotated", "admin.source_changed")
_IDENTITIES: Final = ("admin.identity_added", "admin.identity_removed")
_HOLDS: Final = ("erasure.hold_set", "erasure.hold_released")
UNKNOWN_WORDS: Final = ["(unknown: set this hold again)"]


def _fold_channels(batch: RebuildBatch) -> Iterator[FoldedRow]:
    names = load_project_names(batch)
    targets = dict(_select_channels(batch).values_list("id", "target"))
    added: dict[UUID, ProjectEntry] = {}
    rows: dict[UUID, FoldedRow] = {}
    for entry in load_project_entries(batch, _CHANNELS):
        key, facts = entry.subject, entry.facts
        if key is None or (entry.kind != "admin.channel_added" and key not in added):
            continue
        added.setdefault(key, entry)
        row = rows.setdefault(key, FoldedRow((key,), {}))
        row.position = entry.position
        row.values |= {
            "minimum_risk": facts["minimum_risk"],
            "enabled": bool(facts["enabled"]),
            "removed_at_us": facts.get("removed_at_us"),
            **{name: bool(facts[name]) for name in channels.TOPIC_FLAGS},
        }
        if entry.kind == "admin.channel_removed" and "removed_at_us" not in facts:
            row.unknown["removed_at_us"] = EARLIER_VERSION
        if facts.get("erased"):
            row.unknown["target"] = ERASED
    for key, row in rows.items():
        facts, unknown = added[key].facts, row.unknown
        target = targets.get(key, "")
        if "target" not in facts and key in targets:
            unknown.setdefault("target", EARLIER_VERSION)
        elif facts.get("target") != channels.digest_channel_target(target):
            # A URL is in no entry as a whole: nothing is sent to its shown form.
            target = (added[key].body or {}).get("target") or "(unknown)"
        if "at_us" not in facts:
            unknown["created_at_us"] = EARLIER_VERSION
        row.values |= {
            "id": key,
            "project_id": batch.project,
            "kind": facts["kind"],
            "body_form": facts.get("body_form", "plain"),
            "target": target,
            "person_id": _find_user(batch, facts.get("person"), unknown, "person_id"),
            "created_by_id": names.find_person(added[key].actor),
            "created_at_us": facts.get("at_us"),
        }
        yield row


def _find_user(
    batch: RebuildBatch, pseudonym: str | None, unknown: dict[str, str], column: str
) -> int | None:
    if pseudonym is None:
        return None
    user = load_project_names(batch).find_person(pseudonym)
    if user is None:
        unknown[column] = NO_PERSON
    return user


def _fold_sources(batch: RebuildBatch) -> Iterator[FoldedRow]:
    rows: dict[UUID, FoldedRow] = {}
    for entry in load_project_entries(batch, _SOURCES):
        key, facts = entry.subject, entry.facts
        if key is None or (entry.kind != "admin.source_added" and key not in rows):
            continue
        row = rows.setdefault(key, FoldedRow((key,), {}))
        row.position = entry.position
        if entry.kind == "admin.source_added":
            row.values |= {
                "id": key,
                "project_id": batch.project,
                "host": facts["host"],
                "name": entry.read("name", row.unknown),
                "created_by": entry.actor,
                "created_at_us": facts.get("created_at_us"),
            }
            if "created_at_us" not in facts:
                row.unknown["created_at_us"] = EARLIER_VERSION
        row.values |= {
            "secret_generation": facts["generation"],
            "previous_until_us": facts.get("previous_until_us"),
            "enabled": bool(facts["enabled"]),
        }
    yield from rows.values()


def _fold_identities(batch: RebuildBatch) -> Iterator[FoldedRow]:
    values = dict(_select_identities(batch).values_list("id", "value"))
    listed: dict[UUID, ProjectEntry] = {}
    for entry in load_project_entries(batch, _IDENTITIES):
        if entry.subject is None or "identity" not in entry.facts:
            continue
        key = UUID(entry.facts["identity"])
        if entry.kind == "admin.identity_added":
            listed[key] = entry
        else:
            listed.pop(key, None)
    for key, entry in listed.items():
        unknown: dict[str, str] = {}
        value = entry.read("identity", unknown, "value")
        stored = values.get(key, "")
        if agent_identities.digest_identity(stored) == entry.facts["value"]:
            value = stored
            unknown.clear()
        row = {
            "id": key,
            "project_id": batch.project,
            "agent_id": entry.subject,
            "host": entry.facts["host"],
            "kind": entry.facts["identity_kind"],
            "value": value,
            "created_by": entry.actor,
        }
        yield FoldedRow((key,), row, entry.position, unknown)


def _excuse_identity(batch: RebuildBatch, key: tuple[Any, ...]) -> str:
    """Return why an identity may be there that no entry with its id adds."""
    row = _select_identities(batch).get(pk=key[0])
    if "earlier identities" not in batch.cache:
        batch.cache["earlier identities"] = {
            (entry.subject, (entry.body or {}).get("identity"))
            for entry in load_project_entries(batch, _IDENTITIES)
            if "identity" not in entry.facts and entry.kind == "admin.identity_added"
        }
    earlier = batch.cache["earlier identities"]
    is_earlier = {(row.agent_id, row.value), (row.agent_id, None)} & earlier
    return EARLIER_VERSION if is_earlier else ""


def _fold_limits(batch: RebuildBatch) -> Iterator[FoldedRow]:
    rows: dict[tuple[UUID, str], ProjectEntry] = {}
    for entry in load_project_entries(batch, ("stuck.limit_changed",)):
        if entry.subject is not None:
            rows[entry.subject, entry.facts["limit"]] = entry
    for (agent, name), entry in rows.items():
        if entry.facts["value"] is not None:
            values = {
                "project_id": batch.project,
                "agent_id": agent,
                "name": name,
                "value": entry.facts["value"],
            }
            yield FoldedRow((agent, name), values, entry.position)


def _fold_holds(batch: RebuildBatch) -> Iterator[FoldedRow]:
    rows = _select_holds(batch).values_list("set_position", "words", "released_at_us")
    stored = {position: (words, ended_us) for position, words, ended_us in rows}
    entries = load_project_entries(batch, _HOLDS)
    ended = {
        entry.facts["hold"]: entry for entry in entries if entry.kind == "erasure.hold_released"
    }
    for entry in entries:
        if entry.kind != "erasure.hold_set":
            continue
        unknown: dict[str, str] = {}
        end = ended.get(entry.position)
        words, released_at_us = stored.get(entry.position, ([], None))
        if end is not None:
            words = []
            released_at_us = released_at_us or end.received_us  # a moment after its entry
        if end is None and "words" not in entry.facts:
            unknown["words"] = EARLIER_VERSION
        elif end is None and entry.facts["words"] != erasure_requests.digest_hold_words(words):
            words = UNKNOWN_WORDS  # the entry has their digest only
        values = {
            "project_id": batch.project,
            "kind": entry.facts["subject"],
            "session_id": entry.session,
            "words": words,
            "reason": entry.read("reason", unknown),
            "set_by_id": _find_user(batch, entry.actor, unknown, "set_by_id"),
            "set_position": entry.position,
            "released_at_us": None if end is None else released_at_us,
            "released_by_id": None
            if end is None
            else _find_user(batch, end.actor, unknown, "released_by_id"),
        }
        yield FoldedRow((entry.position,), values, (end or entry).position, unknown)


def _fold_people(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the pseudonym of each person, and whether their password is their own.

    An entry names, by its salt, the password that is their own. A mark that was taken away makes a
    person set their password again, and decides nothing else. Of the account that a pseudonym
    stands for, entries have a digest.
    """
    accounts, (named, first_us) = _load_accounts(batch), _load_own_passwords(batch)
    people_rows = Person.objects.values_list(
        "user_id", "pseudonym", "password_is_own", "user__password", "user__date_joined"
    )
    for user, pseudonym, is_own, password, joined in people_rows.iterator(2_000):
        unknown: dict[str, str] = {}
        right: str | None = pseudonym
        if accounts.get(pseudonym) != people.digest_account(pseudonym, user):
            right = _find_pseudonym(accounts, user)
            if right is None and pseudonym not in accounts:
                unknown["pseudonym"] = EARLIER_VERSION
        position = named.get((right or pseudonym, people.read_password_salt(password)), 0)
        if is_own and not position and int(joined.timestamp() * 1_000_000) < first_us:
            unknown["password_is_own"] = EARLIER_VERSION
        values = {
            "user_id": user,
            "pseudonym": right or "(unknown)",
            "password_is_own": is_own and position > 0,
        }
        yield FoldedRow((user,), values, position, unknown)


def _find_pseudonym(accounts: Mapping[str, str], user: int) -> str | None:
    for pseudonym, digest in accounts.items():
        if people.digest_account(pseudonym, user) == digest:
            return pseudonym
    return None


def _load_accounts(batch: RebuildBatch) -> dict[str, str]:
    """Return the digest of the account of each pseudonym, as the first entry has it."""
    if "accounts" not in batch.cache:
        rows = Entry.objects.filter(
            IS_OF_A_RARE_KIND,
            kind__in=("admin.member_added", *people.OWN_PASSWORD_KINDS),
            lane="system",
        ).order_by("position")
        accounts: dict[str, str] = {}
        for text in rows.values_list("facts", flat=True).iterator(2_000):
            facts = orjson.loads(text)
            if "account" in facts:
                accounts.setdefault(facts["person"], facts["account"])
        batch.cache["accounts"] = accounts
    loaded: dict[str, str] = batch.cache["accounts"]
    return loaded


def _load_own_passwords(batch: RebuildBatch) -> tuple[dict[tuple[str, str], int], int]:
    """Return the entries by person and salt, and when the first one was written (µs)."""
    if "own passwords" not in batch.cache:
        rows = Entry.objects.filter(
            IS_OF_A_RARE_KIND, kind__in=people.OWN_PASSWORD_KINDS, lane="system"
        ).order_by("position")
        named: dict[tuple[str, str], int] = {}
        first_us = 2**63
        for position, received_us, text in rows.values_list("position", "received_us", "facts"):
            facts = orjson.loads(text)
            if facts.get("salt"):
                named[facts["person"], facts["salt"]] = position
                first_us = min(first_us, received_us)
        batch.cache["own passwords"] = named, first_us
    loaded: tuple[dict[tuple[str, str], int], int] = batch.cache["own passwords"]
    return loaded


def _select_channels(batch: RebuildBatch) -> "QuerySet[Any]":
    return NotificationChannel.objects.filter(project=batch.project)


def _select_sources(batch: RebuildBatch) -> "QuerySet[Any]":
    return CodeHostSource.objects.filter(project=batch.project)


def _select_identities(batch: RebuildBatch) -> "QuerySet[Any]":
    return AgentIdentity.objects.filter(project=batch.project)


def _select_limits(batch: RebuildBatch) -> "QuerySet[Any]":
    return StuckLimit.objects.filter(project=batch.project)


def _select_holds(batch: RebuildBatch) -> "QuerySet[Any]":
    return LegalHold.objects.filter(project=batch.project)


def _select_people(_batch: RebuildBatch) -> "QuerySet[Any]":
    return Person.objects.all()


_OF_PERSON: Final = {
    **dict.fromkeys(("theme", "clock", "single_keys"), "a setting of pages, which decides nothing"),
    **dict.fromkeys(
        ("password_given_by", "password_given_at"), "shown to people; admin.password_reset has it"
    ),
}


def register_setting_checks() -> None:
    """Register the checks of channels, code hosts, limits, holds and own passwords."""
    checks = (
        RowCheck(
            Person,
            ("user_id",),
            "installation",
            _fold_people,
            _select_people,
            people.restore_people,
            _OF_PERSON,
        ),
        RowCheck(
            NotificationChannel,
            ("id",),
            "project",
            _fold_channels,
            _select_channels,
            channels.restore_channels,
            insert_values=lambda row: (
                {"target": row.values["target"], "created_at_us": 0} if row.unknown else {}
            ),
        ),
        RowCheck(
            CodeHostSource,
            ("id",),
            "project",
            _fold_sources,
            _select_sources,
            sources.restore_sources,
            {
                "refused_count": "counts requests that were refused, which no entry has",
                "last_refused_us": "the clock of the last refused request",
            },
        ),
        RowCheck(
            AgentIdentity,
            ("id",),
            "project",
            _fold_identities,
            _select_identities,
            agent_identities.restore_identities,
            {"created_at_us": "the clock of the row, a moment before that of its entry"},
            lambda row: {"created_at_us": 0, "value": row.values["value"] or "(erased)"},
            excuse=_excuse_identity,
        ),
        RowCheck(
            StuckLimit,
            ("agent_id", "name"),
            "project",
            _fold_limits,
            _select_limits,
            rule_limits.restore_limits,
            {"id": _NOT_A_REFERENCE},
        ),
        RowCheck(
            LegalHold,
            ("set_position",),
            "project",
            _fold_holds,
            _select_holds,
            erasure_requests.restore_legal_holds,
            {
                "id": _NOT_A_REFERENCE,
                "set_at_us": "the clock of the row",
            },
            lambda row: {
                "set_at_us": 0,
                "words": row.values["words"] or [],
            },
        ),
    )
    for check in checks:
        register_row_check(check.table, check)
