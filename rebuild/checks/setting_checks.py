"""Checks of settings that decide: notifications, events, accounts, own passwords."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.hashers import is_password_usable
from django.contrib.auth.models import User
from django.db.models import QuerySet

from accounts import invitations, people
from accounts.models import Person
from hooks.code_hosts import agent_identities, sources
from hooks.models import AgentIdentity, CodeHostSource
from journal.entries import SYSTEM_SOURCE
from journal.models import Body, Entry
from journal.summaries import parse_body
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from monitoring.models import StuckLimit
from monitoring.stuck import rule_limits
from notifications import channels
from notifications.models import NotificationChannel
from rebuild.past_voters import MEMBER_KINDS
from rebuild.project_journal import (
    EARLIER_VERSION,
    ERASED,
    ProjectEntry,
    load_project_entries,
)
from rebuild.project_names import read_user
from rebuild.registry import Fault, FoldedRow, RebuildBatch, RowCheck, register_row_check
from rebuild.short_entries import FullForms

_NOT_A_REFERENCE: Final = "a number of the table, to which nothing refers"
_CHANNELS: Final = ("admin.channel_added", "admin.channel_changed", "admin.channel_removed")
_SOURCES: Final = ("admin.source_added", "admin.source_rotated", "admin.source_changed")
_IDENTITIES: Final = ("admin.identity_added", "admin.identity_removed")
_NOT_JOINED: Final = "no entry added the account to a project"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PSEUDONYM: Final = re.compile("p_[0-9a-f]{16}")
_MOMENT_US: Final = 60_000_000  # at most between a row's clock and that of its entry


def _fold_channels(batch: RebuildBatch) -> Iterator[FoldedRow]:
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
            "person_id": read_user(batch, facts.get("person"), unknown, "person_id"),
            "created_by_id": read_user(batch, added[key].actor, unknown, "created_by_id"),
            "created_at_us": facts.get("at_us"),
        }
        yield row


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
        unknown, faults = dict[str, str](), dict[str, Fault]()
        value = entry.read("identity", unknown, "value")
        stored = values.get(key, "")
        if agent_identities.digest_identity(stored) == entry.facts["value"]:
            value = stored
            unknown.clear()
        elif value is None and key in values:
            faults["value"] = "altered"
        row = {
            "id": key,
            "project_id": batch.project,
            "agent_id": entry.subject,
            "host": entry.facts["host"],
            "kind": entry.facts["identity_kind"],
            "value": value,
            "created_by": entry.actor,
        }
        yield FoldedRow((key,), row, entry.position, unknown, faults)


def _excuse_identity(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Return why an identity may be there that no entry with its id adds."""
    if "earlier identities" not in batch.cache:
        batch.cache["earlier identities"] = {
            (entry.subject, (entry.body or {}).get("identity"))
            for entry in load_project_entries(batch, _IDENTITIES)
            if "identity" not in entry.facts and entry.kind == "admin.identity_added"
        }
    earlier = batch.cache["earlier identities"]
    agent = stored["agent_id"]
    is_earlier = {(agent, stored["value"]), (agent, None)} & earlier
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


class _Invited(NamedTuple):
    """The entry of an invitation, which may have given the account its first password."""

    position: int
    invitation: UUID
    account: str  # keyed digest
    actor: str
    received_us: int


@dataclass(slots=True)
class _PeopleEntries:
    """What entries say about accounts and passwords, by pseudonym."""

    # The digest of the account, and the first entry that has it.
    accounts: dict[str, tuple[str, int]] = field(default_factory=dict)
    passwords: dict[tuple[str, str], int] = field(default_factory=dict)  # the last entry, by digest
    salts: set[tuple[str, str]] = field(default_factory=set)  # of entries without a digest
    # The digest in the last entry of any password, None where it has none, and that entry.
    last_passwords: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    # By digest of the password: the invitation that gave it.
    invited: dict[str, _Invited] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)  # their own password is in an entry
    added: dict[str, int] = field(default_factory=dict)  # the first admin.member_added
    added_last: dict[str, int] = field(default_factory=dict)  # the last one
    # The entries whose bodies have the user name: of memberships, and of invitations by their id.
    naming: dict[str, list[int]] = field(default_factory=dict)
    inviting: dict[str, int] = field(default_factory=dict)
    reset: dict[str, int] = field(default_factory=dict)  # the last admin.password_reset
    # Whether the account is active, and the last entry that says so.
    active: dict[str, tuple[bool, int]] = field(default_factory=dict)
    given: dict[str, tuple[str, int]] = field(default_factory=dict)  # by whom that was, and when
    last: dict[str, int] = field(default_factory=dict)  # the last entry of any of these kinds
    first: int = 2**63  # the first entry with a salt, and its time
    first_us: int = 2**63

    def add(
        self, position: int, received_us: int, kind: str, actor: str, facts: Mapping[str, Any]
    ) -> None:
        """Add an entry, in the order of positions."""
        person = facts["person"]
        self.last[person] = position
        if "account" in facts:
            self.accounts.setdefault(person, (facts["account"], position))
        if kind in people.ACCOUNT_KINDS:
            self.active[person] = kind == "admin.account_opened", position
        elif "active" in facts:
            self.active[person] = bool(facts["active"]), position
        if kind in MEMBER_KINDS:
            invited = self.inviting.get(facts.get("invitation", ""))
            self.naming.setdefault(person, []).extend(filter(None, (position, invited)))
        if kind == "admin.member_added":
            self.added.setdefault(person, position)
            self.added_last[person] = position
        elif kind == "admin.password_reset":
            self.reset[person] = position
            self.given[person] = actor, received_us
            self.last_passwords[person] = facts.get("password"), position
        elif facts.get("salt"):
            if kind == "admin.password_given":
                self.given[person] = actor, received_us
            self.last_passwords[person] = facts.get("password"), position
            if "password" in facts:
                self.passwords[person, facts["password"]] = position
            else:
                self.salts.add((person, facts["salt"]))
            self.named.add(person)
            self.first, self.first_us = min(self.first, position), min(self.first_us, received_us)

    def find_pseudonym(self, user: int, stored: str | None = None) -> str | None:
        """Return the pseudonym of an account; `stored` is tried first."""
        account = self.accounts.get(stored or "")
        if stored and account and people.digest_account(stored, user) == account[0]:
            return stored
        for pseudonym, (digest, _position) in self.accounts.items():
            if people.digest_account(pseudonym, user) == digest:
                return pseudonym
        return None

    def find_invitation(self, user: int, password: str) -> _Invited | None:
        """Return the invitation that gave `user` this stored password, if one did."""
        invited = self.invited.get(people.digest_password(password))
        if invited is None:
            return None
        digest = invitations.digest_invited_account(invited.invitation, user)
        return invited if digest == invited.account else None

    def is_password_recorded(self, person: str | None, user: int, password: str) -> bool:
        """Return True if the stored password is the one of the last entry about it.

        It may be that of a later invitation, which gives a password to an unused account only. An
        account without such entries is from `createsuperuser` or an earlier version.
        """
        last, position = self.last_passwords.get(person or "", (None, 0))
        if not is_password_usable(password):  # of an erased person, whose account is closed
            return last is None or self.is_closed(person)
        if last == people.digest_password(password):
            return True
        invited = self.find_invitation(user, password)
        return last is None if invited is None else invited.position > position

    def find_given(
        self, person: str | None, user: int, password: str
    ) -> tuple[str, int, bool] | None:
        """Return who else last gave a password, when, and if it is the stored one.

        The operator who runs `manage.py setup` counts too. An empty giver: entries have only the
        person's own password. None: an earlier version may have recorded less.
        """
        last, position = self.last_passwords.get(person or "", (None, 0))
        invited = self.find_invitation(user, password)
        if invited is not None and invited.position > position:
            return invited.actor, invited.received_us, True
        if person is None or person not in self.given:
            return ("", 0, False) if person in self.named else None
        is_present = position == self.reset.get(person) and last == people.digest_password(password)
        return (*self.given[person], is_present)

    def is_closed(self, person: str | None) -> bool:
        """Return True if the last entry about the account of a person closed it."""
        is_active, _position = self.active.get(person or "", (True, 0))
        return not is_active

    def was_invited_by(self, user: int, actor: str, at_us: int) -> bool:
        """Return True if an invitation of an account by this person is of about this moment."""
        return any(
            invited.actor == actor
            and abs(invited.received_us - at_us) <= _MOMENT_US
            and invitations.digest_invited_account(invited.invitation, user) == invited.account
            for invited in self.invited.values()
        )

    def is_password_earlier(self, person: str, salt: str, joined_us: int) -> bool:
        """Return True if a version that recorded less may have seen this own password set.

        Entries decide how old a person is. The account's own time can be changed, so it counts
        only where no entry names the person.
        """
        if person in self.named:
            return (person, salt) in self.salts
        is_older = (
            self.added[person] < self.first if person in self.added else (joined_us < self.first_us)
        )
        return is_older and self.reset.get(person, 0) < self.first


def _fold_people(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the pseudonym of each person, and whether their password is their own.

    Entries have digests of the password that is their own, and of the account that a pseudonym
    stands for. A mark that was taken away makes a person set their password again, and decides
    nothing else.
    """
    of_people = _load_people_entries(batch)
    stored_people, users = set[str](), set[int]()  # whose account is there; all accounts
    rows = User.objects.values_list(
        *("pk", "person__pseudonym", "person__password_is_own", "password", "date_joined"),
        *("person__password_given_by", "person__password_given_at"),
    )
    for user, stored, is_own, password, joined, given_by, given_at in rows.iterator(2_000):
        unknown: dict[str, str] = {}
        users.add(user)
        right: str | None = stored
        account = of_people.accounts.get(stored or "")
        if account is None or account[0] != people.digest_account(stored, user):
            right = of_people.find_pseudonym(user)
            if right is None and stored is None:
                continue  # an account that never acted
            if right is None and account is None:
                unknown["pseudonym"] = EARLIER_VERSION
        if right is not None:
            stored_people.add(right)
        person = right or stored
        position = of_people.passwords.get((person, people.digest_password(password)), 0)
        salt, joined_us = people.read_password_salt(password), int(joined.timestamp() * 1_000_000)
        is_invited = of_people.find_invitation(user, password) is not None
        if (
            is_own
            and not position
            and not is_invited
            and of_people.is_password_earlier(person, salt, joined_us)
        ):
            unknown["password_is_own"] = EARLIER_VERSION
        values = {
            "user_id": user,
            "pseudonym": right or "(unknown)",
            "password_is_own": is_own is not False and position > 0,
        }
        given = of_people.find_given(person, user, password)
        if given is not None and not of_people.is_closed(person):
            by, at = _find_giver(of_people, user, given, given_by, given_at)
            values |= {"password_given_by": by, "password_given_at": at}
        # Another form would attribute acts to an agent, or to Gatebook.
        is_pseudonym = person is None or _PSEUDONYM.fullmatch(person) is not None
        faults: dict[str, Fault] = {} if is_pseudonym else {"pseudonym": "altered"}
        named_at = position or of_people.accounts.get(person, ("", 0))[1]
        yield FoldedRow((user,), values, named_at, unknown, faults)
    for user, person in Person.objects.values_list("user", "pseudonym").iterator(2_000):
        if person not in of_people.accounts:
            stored_people.add(person)
        if user not in users:  # the account is named as lost; its pseudonym is kept for the search
            yield FoldedRow((user,), {})
    for person in of_people.last.keys() - stored_people:
        yield FoldedRow((person,), {}, of_people.last[person], is_lost=True)


def _find_giver(
    of_people: _PeopleEntries,
    user: int,
    given: tuple[str, int, bool],
    stored_by: str,
    stored_at: datetime | None,
) -> tuple[str, datetime | None]:
    """Return who else gave a password, and when: by the last entry, or by a later invitation.

    An invitation gives a password to an unused account only, which its entry does not tell.
    """
    by, given_us, is_present = given
    recorded = by, _EPOCH + timedelta(microseconds=given_us) if given_us else None
    if stored_at is None:
        return recorded
    stored_us = (stored_at - _EPOCH) // timedelta(microseconds=1)
    is_near = abs(stored_us - given_us) <= _MOMENT_US
    if is_near and stored_by == by:
        return by, stored_at
    is_later = stored_us > given_us - _MOMENT_US and not is_present
    if is_later and of_people.was_invited_by(user, stored_by, stored_us):
        return stored_by, stored_at
    return (by, stored_at) if is_near else recorded


def _fold_accounts(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the username of each account that entries speak of, and if it is active.

    A password that is not the one of the last entry about it was replaced in the database. No
    account is ever deleted: that of an erased person keeps its pseudonym.
    """
    of_people = _load_people_entries(batch)
    stored_people: set[str | None] = set()
    texts = Body.objects.filter(entry__in=[*chain(*of_people.naming.values())])
    bodies = dict(texts.values_list("entry", "text"))
    rows = User.objects.values_list("pk", "person__pseudonym", "password")
    for user, stored, password in rows.iterator(2_000):
        person = of_people.find_pseudonym(user, stored)
        stored_people.add(person)
        added = of_people.added_last.get(person or "", 0)
        is_active, stated_at = of_people.active.get(person or "", (None, 0))
        _digest, given_at = of_people.last_passwords.get(person or "", (None, 0))
        if not added and not stated_at and not given_at:
            continue
        body = parse_body(bodies.get(added, ""))
        unknown = {} if "username" in body else {"username": ERASED if added else _NOT_JOINED}
        if is_active is None:
            unknown["is_active"] = EARLIER_VERSION
        values = {"id": user, "username": body.get("username"), "is_active": is_active}
        is_recorded = of_people.is_password_recorded(person, user, password)
        faults: dict[str, Fault] = {} if is_recorded else {"password": "altered"}
        names = of_people.naming.get(person or "", ())
        named = {parse_body(bodies.get(at, "")).get("username") for at in names}
        if len(named - {None}) > 1:  # no account is renamed: for a while the row had another name
            faults["username"] = "altered"
        yield FoldedRow((user,), values, max(added, stated_at, given_at), unknown, faults)
    for person in of_people.accounts.keys() - stored_people:
        yield FoldedRow((person,), {}, of_people.last[person], is_lost=True)


def _excuse_account(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Excuse accounts that no entry added to a project: no act is attributed to them."""
    of_people = _load_people_entries(batch)
    person = of_people.find_pseudonym(stored["id"])
    return "" if person in of_people.added_last else EARLIER_VERSION


def _load_people_entries(batch: RebuildBatch) -> _PeopleEntries:
    if "people" not in batch.cache:
        kinds = (
            *MEMBER_KINDS,
            "admin.member_invited",
            "admin.password_reset",
            *people.ACCOUNT_KINDS,
            *people.OWN_PASSWORD_KINDS,
        )
        # An imported bundle may have entries of these kinds too: those are from elsewhere.
        rows = Entry.objects.filter(
            IS_OF_A_RARE_KIND, kind__in=kinds, lane="system", source=SYSTEM_SOURCE
        )
        of_people, forms = _PeopleEntries(), FullForms()
        names = ("position", "received_us", "kind", "actor", "subject", "facts")
        columns = rows.order_by("position").values_list(*names)
        for position, received_us, kind, actor, subject, text in columns.iterator(2_000):
            facts = forms.read_full_facts(position, kind, text)
            if facts is None:
                continue
            if "person" in facts:
                of_people.add(position, received_us, kind, actor, facts)
                continue
            if subject is not None:
                of_people.inviting[subject.hex] = position
            if "password" in facts and subject is not None:
                of_people.invited[facts["password"]] = _Invited(
                    position, subject, facts["account"], actor, received_us
                )
        batch.cache["people"] = of_people
    loaded: _PeopleEntries = batch.cache["people"]
    return loaded


def _select_channels(batch: RebuildBatch) -> "QuerySet[Any]":
    return NotificationChannel.objects.filter(project=batch.project)


def _select_sources(batch: RebuildBatch) -> "QuerySet[Any]":
    return CodeHostSource.objects.filter(project=batch.project)


def _select_identities(batch: RebuildBatch) -> "QuerySet[Any]":
    return AgentIdentity.objects.filter(project=batch.project)


def _select_limits(batch: RebuildBatch) -> "QuerySet[Any]":
    return StuckLimit.objects.filter(project=batch.project)


def _select_accounts(_batch: RebuildBatch) -> "QuerySet[Any]":
    return User.objects.all()


def _select_people(_batch: RebuildBatch) -> "QuerySet[Any]":
    return Person.objects.all()


_OF_PERSON: Final = dict.fromkeys(
    ("theme", "clock", "single_keys"), "a setting of pages, which decides nothing"
)
_OF_ACCOUNT: Final = {
    **dict.fromkeys(
        ("password", "date_joined"), "compared with the entries of the person's own password"
    ),
    **dict.fromkeys(
        ("is_superuser", "is_staff", "first_name", "last_name", "email"),
        "a setting of the account, which gives no role in a project",
    ),
    "last_login": "the clock of the last sign-in",
}


def register_setting_checks() -> None:
    """Register the checks of channels, code hosts, limits and own passwords."""
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
            User,
            ("id",),
            "installation",
            _fold_accounts,
            _select_accounts,
            people.restore_accounts,
            _OF_ACCOUNT,
            excuse=_excuse_account,
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
    )
    for check in checks:
        register_row_check(check.table, check)
