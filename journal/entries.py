"""The one writer of Entry and Body: the origin of a fact, its entry, and the append, set-wise.

Has SQL for both vendors; docs/decisions/0003-write-path.md says why it is not the ORM.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connection

from db import clock, raw_sql
from journal.models import SCHEMA_VERSION, Body, Entry
from journal.order_keys import make_latest_key, make_order_key

SYSTEM_SOURCE = "gatebook"
Lane = Literal["command", "evidence", "claim"]


class AppendStatus(StrEnum):
    """The result for one draft."""

    CREATED = "created"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(slots=True)
class Draft:
    """An entry to append; times in microseconds, `facts` in canonical JSON."""

    project: UUID
    source: str
    event_id: str
    kind: str
    lane: str
    actor: str
    text: str
    facts: str = "{}"
    session: UUID | None = None
    effect: UUID | None = None
    attempt: int | None = None
    subject: UUID | None = None
    claimed_source: str = ""
    lease_epoch: int | None = None
    producer_seq: int | None = None
    occurred_us: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The key of the entry, unique within its project."""
        return self.source, self.event_id


@dataclass(slots=True, frozen=True)
class AppendResult:
    """The result for a draft; `position` is that of the stored entry."""

    status: AppendStatus
    position: int


def dump_sorted_json(value: Any) -> str:
    """Return a value as entries store it: JSON with sorted keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def compute_commitment(salt: bytes, text: str) -> bytes:
    """Return SHA-256 over salt ‖ text, which remains when a body is erased."""
    return hashlib.sha256(salt + text.encode()).digest()


def keyed_digest(*parts: str) -> str:
    """Return 32 hex digits under the pepper, as an id of Gatebook's own entries."""
    message = "\0".join(parts).encode()
    return hmac.new(settings.GATEBOOK_PEPPER, message, hashlib.sha256).hexdigest()[:32]


def append_entries(drafts: Sequence[Draft], received_us: int) -> list[AppendResult]:
    """Append `drafts` in order and return the result of each, in the same order.

    A draft with a stored key and equal text is a duplicate; with other text it is a conflict, which
    is recorded as an `integrity.conflict` entry. Must run inside a transaction. Positions follow
    the given order; rows are written sorted by key, so that overlapping batches do not deadlock.
    """
    results: list[AppendResult | None] = [None] * len(drafts)
    first: dict[tuple[UUID, str, str], int] = {}
    repeats: list[int] = []
    for index, draft in enumerate(drafts):
        if first.setdefault((draft.project, draft.source, draft.event_id), index) != index:
            repeats.append(index)
    fresh = list(first.values())
    positions = _insert([drafts[index] for index in fresh], received_us)
    created: dict[int, int] = {
        index: position
        for index, position in zip(fresh, positions, strict=True)
        if position is not None
    }
    for index, position in created.items():
        results[index] = AppendResult(AppendStatus.CREATED, position)
    existing = [index for index in fresh if index not in created]
    for index in repeats:
        draft = drafts[index]
        original = first[draft.project, draft.source, draft.event_id]
        if original in created:
            same = drafts[original].text == draft.text
            results[index] = AppendResult(
                AppendStatus.DUPLICATE if same else AppendStatus.CONFLICT, created[original]
            )
        else:
            # Compare with the stored entry: the first of them may itself be the conflict.
            existing.append(index)
    for index, result in zip(
        existing, _compare([drafts[index] for index in existing]), strict=True
    ):
        results[index] = result
    conflicts = [
        drafts[i]
        for i, result in enumerate(results)
        if result is not None and result.status is AppendStatus.CONFLICT
    ]
    if conflicts:
        _insert(_unique(_conflict(draft) for draft in conflicts), received_us)
    return [result for result in results if result is not None]


def compare_with_stored(draft: Draft, received_us: int) -> AppendResult | None:
    """Compare `draft` with the stored entry of its key; None if there is none.

    A conflict is recorded as evidence, as by `append_entries`.
    """
    results = _compare([draft], missing_ok=True)
    if results and results[0].status is AppendStatus.CONFLICT:
        _insert([_conflict(draft)], received_us)
    return results[0] if results else None


def record_system_entry(
    project: UUID,
    kind: str,
    *,
    event_id: str,
    text: str,
    received_us: int,
    actor: str = SYSTEM_SOURCE,
    facts: str = "{}",
    session: UUID | None = None,
    effect: UUID | None = None,
    attempt: int | None = None,
    subject: UUID | None = None,
) -> AppendResult:
    """Append one entry of Gatebook itself; repeating it changes nothing."""
    draft = Draft(
        project=project,
        source=SYSTEM_SOURCE,
        event_id=event_id,
        kind=kind,
        lane="system",
        actor=actor,
        text=text,
        facts=facts,
        session=session,
        effect=effect,
        attempt=attempt,
        subject=subject,
    )
    return append_entries([draft], received_us)[0]


def append_named_entries(
    project: UUID, kind: str, things: Mapping[UUID, Mapping[str, UUID]], received_us: int
) -> dict[UUID, int]:
    """Append an entry for each thing named before its own facts; return its position by id.

    Its position gives a thing its handle. `things` holds by id the columns of the entry that
    identify the thing.
    """
    drafts = [_named(project, kind, thing, about) for thing, about in things.items()]
    results = append_entries(drafts, received_us)
    return {thing: result.position for thing, result in zip(things, results, strict=True)}


def import_entries(
    drafts: Sequence[Draft], kept: Sequence[tuple[bytes | None, bytes | None]], received_us: int
) -> list[int]:
    """Import entries of another journal; return their positions in order.

    `kept` has the commitment and salt of each, or None for an entry without a body. The keys must
    be new. Must run inside a transaction.
    """
    made = [
        Entry(
            **dict(zip(_NAMES, _read(draft), strict=True)),
            facts=draft.facts,
            received_us=received_us,
            body_commit=digest,
        )
        for draft, (digest, _) in zip(drafts, kept, strict=True)
    ]
    Entry.objects.bulk_create(made, batch_size=500)
    triples = zip(made, drafts, kept, strict=True)
    Body.objects.bulk_create(
        [Body(entry=entry, salt=s, text=d.text) for entry, d, (_, s) in triples if s],
        batch_size=500,
    )
    return [entry.position for entry in made]


def delete_body(position: int) -> None:
    """Delete a body and its salt; requires an erasure that names the entry."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM journal_body WHERE entry_id = %s", [position])


def delete_bodies(positions: Sequence[int]) -> None:
    """Delete bodies and salts; requires a row of Erasure for each."""
    raw_sql.execute_write(
        "DELETE FROM journal_body WHERE entry_id IN"
        f" (SELECT wanted.key FROM {raw_sql.wanted_table('bigint')})",
        [raw_sql.to_array_parameter(positions)],
    )


def write_positions(positions: Sequence[int]) -> str:
    """Write ascending positions as runs, such as `3,7-9`, as the stand-alone verifier reads."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def read_positions(runs: str) -> list[tuple[int, int]]:
    """Return the first and the last position of each run that `write_positions` wrote."""
    pairs = (run.partition("-") for run in runs.split(","))
    return [(int(first), int(last or first)) for first, _, last in pairs]


def _named(project: UUID, kind: str, thing: UUID, about: Mapping[str, UUID]) -> Draft:
    """Build the entry by Gatebook for a thing that a fact names."""
    return Draft(
        project=project,
        source=SYSTEM_SOURCE,
        event_id=keyed_digest(kind, str(thing)),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        # Two facts may name a thing at once: an equal text makes their entries one.
        text=dump_sorted_json(about),
        session=about.get("session"),
        effect=about.get("effect"),
    )


def _conflict(draft: Draft) -> Draft:
    """Build the evidence of a key that was sent again with other content."""
    event_id = keyed_digest("conflict", draft.source, draft.event_id, draft.text)
    facts = orjson.dumps(
        {"key": keyed_digest("key", draft.source, draft.event_id), "kind": draft.kind}
    ).decode()
    return Draft(
        project=draft.project,
        source=SYSTEM_SOURCE,
        event_id=event_id,
        kind="integrity.conflict",
        lane="system",
        actor=draft.actor,
        text=draft.text,
        facts=facts,
        session=draft.session,
        effect=draft.effect,
        attempt=draft.attempt,
        subject=draft.subject,
        claimed_source=draft.source,
    )


def _unique(drafts: Iterable[Draft]) -> list[Draft]:
    return list({draft.key: draft for draft in drafts}.values())


_COLUMNS = (
    "position, project, source, claimed_source, id, kind, session, effect, attempt, subject,"
    " actor, lane, lease_epoch, producer_seq, occurred_us, received_us, facts, body_commit,"
    " schema_version"
)

# One statement: positions in the given order, rows in key order, bodies only for new entries.
_INSERT_POSTGRESQL = f"""
WITH sent AS MATERIALIZED (
  SELECT nextval('journal_entry_position_seq') AS position, given.*
  FROM json_to_recordset(%s::json) AS given(
    n int, project uuid, source text, claimed_source text, id text, kind text, session uuid,
    effect uuid, attempt int, subject uuid, actor text, lane text, lease_epoch bigint,
    producer_seq bigint, occurred_us bigint, facts text, commit text, salt text, body text)
), fresh AS (
  INSERT INTO journal_entry ({_COLUMNS})
  SELECT position, project, source, claimed_source, id, kind, session, effect, attempt, subject,
    actor, lane, lease_epoch, producer_seq, occurred_us, %s::bigint, facts, decode(commit, 'hex'),
    {SCHEMA_VERSION}
  FROM sent ORDER BY project, source, id
  ON CONFLICT (project, source, id) DO NOTHING RETURNING position
), bodies AS (
  INSERT INTO journal_body (entry_id, salt, text)
  SELECT position, decode(salt, 'hex'), body
  FROM sent JOIN fresh USING (position) ORDER BY position
)
SELECT sent.n, sent.position FROM sent JOIN fresh USING (position)
"""

# The same for a single entry, without the JSON document.
_NAMED = _COLUMNS.removeprefix("position, ")
_INSERT_ONE_POSTGRESQL = f"""
WITH fresh AS (
  INSERT INTO journal_entry ({_NAMED}) VALUES ({", ".join(["%s"] * 18)})
  ON CONFLICT (project, source, id) DO NOTHING RETURNING position
), body AS (
  INSERT INTO journal_body (entry_id, salt, text) SELECT position, %s, %s FROM fresh
)
SELECT position FROM fresh
"""

_INSERT_SQLITE = f"INSERT INTO journal_entry ({_COLUMNS}) VALUES ({', '.join(['%s'] * 19)})"
_INSERT_SQLITE += " ON CONFLICT (project, source, id) DO NOTHING"
_INSERT_BODY_SQLITE = "INSERT INTO journal_body (entry_id, salt, text) VALUES (%s, %s, %s)"


# The columns that a draft has, in the order of _COLUMNS, and the names of its fields.
_SENT = _COLUMNS.removeprefix("position, ").split(", received_us")[0].split(", ")
_NAMES = ["event_id" if name == "id" else name for name in _SENT]
_read = attrgetter(*_NAMES)


def _insert(drafts: Sequence[Draft], received_us: int) -> list[int | None]:
    """Insert entries with different keys; return positions, None if stored."""
    if not drafts:
        return []
    if clock.is_simulated():  # only the time at which something happened may be made up
        for draft in drafts:
            draft.occurred_us = received_us if draft.occurred_us is None else draft.occurred_us
        received_us = clock.real_now_us()
    salts = os.urandom(32 * len(drafts))
    if connection.vendor == "postgresql":
        if len(drafts) == 1:
            return _insert_one_postgresql(drafts[0], received_us, salts)
        return _insert_postgresql(drafts, received_us, salts)
    return _insert_sqlite(drafts, received_us, salts)


def _insert_one_postgresql(draft: Draft, received_us: int, salt: bytes) -> list[int | None]:
    values: list[Any] = [
        *_read(draft),
        received_us,
        draft.facts,
        compute_commitment(salt, draft.text),
        SCHEMA_VERSION,
    ]
    new = raw_sql.fetch_rows(_INSERT_ONE_POSTGRESQL, [*values, salt, draft.text])
    return [int(new[0][0]) if new else None]


def _insert_postgresql(drafts: Sequence[Draft], received_us: int, salts: bytes) -> list[int | None]:
    rows = []
    for n, draft in enumerate(drafts):
        salt = salts[32 * n : 32 * n + 32]
        row: dict[str, Any] = dict(zip(_SENT, _read(draft), strict=True))
        row["n"] = n
        row["facts"] = draft.facts
        row["commit"] = compute_commitment(salt, draft.text).hex()
        row["salt"] = salt.hex()
        row["body"] = draft.text
        rows.append(row)
    positions: list[int | None] = [None] * len(drafts)
    for n, position in raw_sql.fetch_rows(
        _INSERT_POSTGRESQL, [orjson.dumps(rows).decode(), received_us]
    ):
        positions[n] = position
    return positions


def _insert_sqlite(drafts: Sequence[Draft], received_us: int, salts: bytes) -> list[int | None]:
    last = raw_sql.fetch_rows(
        "SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'journal_entry'), 0)"
    )
    base = int(last[0][0]) + 1
    entries, bodies = [], []
    for position, draft in enumerate(drafts, base):
        salt = salts[32 * (position - base) : 32 * (position - base) + 32]
        sent = [value.hex if isinstance(value, UUID) else value for value in _read(draft)]
        entries.append(
            [
                position,
                *sent,
                received_us,
                draft.facts,
                compute_commitment(salt, draft.text),
                SCHEMA_VERSION,
            ]
        )
        bodies.append((position, salt, draft.text))
    positions: list[int | None] = list(range(base, base + len(drafts)))
    if raw_sql.execute_write_each(_INSERT_SQLITE, entries) < len(drafts):
        new = {
            row[0]
            for row in raw_sql.fetch_rows(
                "SELECT position FROM journal_entry WHERE position >= %s", [base]
            )
        }
        bodies = [body for body in bodies if body[0] in new]
        positions = [position if position in new else None for position in positions]
    raw_sql.execute_write_each(_INSERT_BODY_SQLITE, bodies)
    return positions


def _compare(drafts: Sequence[Draft], *, missing_ok: bool = False) -> list[AppendResult]:
    """Tell duplicates from conflicts by hashing each text with the stored salt."""
    if not drafts:
        return []
    stored = _stored(drafts)
    results = []
    for draft in drafts:
        key = (draft.project, draft.source, draft.event_id)
        if missing_ok and key not in stored:
            continue
        position, salt, commit = stored[key]
        # An erased body has no salt, so nothing can be compared: the stored entry counts.
        same = salt is None or compute_commitment(salt, draft.text) == commit
        results.append(
            AppendResult(AppendStatus.DUPLICATE if same else AppendStatus.CONFLICT, position)
        )
    return results


def _stored(
    drafts: Sequence[Draft],
) -> dict[tuple[UUID, str, str], tuple[int, bytes | None, bytes]]:
    """Return (position, salt, commitment) by key, in batches of bounded size."""
    stored: dict[tuple[UUID, str, str], tuple[int, bytes | None, bytes]] = {}
    groups: dict[tuple[UUID, str], list[str]] = {}
    for draft in drafts:
        groups.setdefault((draft.project, draft.source), []).append(draft.event_id)
    with connection.cursor() as cursor:
        for (project, source), ids in groups.items():
            for start in range(0, len(ids), 500):
                part = ids[start : start + 500]
                marks = ", ".join(["%s"] * len(part))
                cursor.execute(
                    "SELECT entry.id, entry.position, body.salt, entry.body_commit"
                    " FROM journal_entry entry"
                    " LEFT JOIN journal_body body ON body.entry_id = entry.position"
                    f" WHERE entry.project = %s AND entry.source = %s AND entry.id IN ({marks})",
                    [project if connection.vendor == "postgresql" else project.hex, source, *part],
                )
                for event_id, position, salt, commit in cursor.fetchall():
                    stored[project, source, event_id] = (
                        position,
                        bytes(salt) if salt else None,
                        bytes(commit or b""),
                    )
    return stored


class RepeatedKey(Exception):
    """The command's key is in the journal. The endpoint repeats the stored answer."""


@dataclass(slots=True)
class Origin:
    """The envelope of one fact.

    Times are microseconds since the epoch; `text` is the canonical body.
    """

    project: UUID
    agent: UUID
    source: str
    actor: str
    lane: Lane
    key: str  # the entry's id
    text: str
    received_us: int
    claimed_source: str = ""
    occurred_us: int | None = None
    producer_seq: int | None = None
    lease_epoch: int | None = None
    imports: bool = False  # the token's scope is import
    team: str = ""  # the agent's team

    @property
    def mark(self) -> str:
        """Return the order key of this fact."""
        return make_order_key(self.lane, self.producer_seq, self.source, self.key)

    def latest_mark(self, position: int) -> str:
        """Return this fact's order key at `position`, for fields where the latest counts."""
        return make_latest_key(self.lane, position, self.producer_seq, self.source, self.key)

    @property
    def told_us(self) -> int | None:
        """Return when the fact happened, if reported.

        That is the producer's time, or for a command the time of the request.
        """
        if self.occurred_us is not None:
            return self.occurred_us
        return self.received_us if self.lane == "command" else None

    def draft(
        self,
        kind: str,
        *,
        facts: str = "{}",
        session: UUID | None = None,
        effect: UUID | None = None,
        attempt: int | None = None,
        subject: UUID | None = None,
    ) -> Draft:
        """Build the journal entry of this fact."""
        return Draft(
            project=self.project,
            source=self.source,
            event_id=self.key,
            kind=kind,
            lane=self.lane,
            actor=self.actor,
            text=self.text,
            facts=facts,
            session=session,
            effect=effect,
            attempt=attempt,
            subject=subject,
            claimed_source=self.claimed_source,
            lease_epoch=self.lease_epoch,
            producer_seq=self.producer_seq,
            occurred_us=self.occurred_us,
        )

    def append_draft(self, draft: Draft) -> int:
        """Append the entry of a command; return its position. Raises RepeatedKey."""
        appended = append_entries([draft], self.received_us)[0]
        if appended.status is not AppendStatus.CREATED:
            raise RepeatedKey
        return appended.position
