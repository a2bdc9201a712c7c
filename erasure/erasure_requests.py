"""The one writer of ErasureRequest, LegalHold: requests, their confirmation, and holds.

A request is written before anything is erased: the row with `erasure.requested`, and at its
confirmation a line of the erasure journal. Entries hold no words of the subject.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from accounts.models import Membership, Person, Project
from accounts.people import ensure_pseudonym, has_own_password
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from db.row_changes import RowChange, write_row_changes
from erasure import erasure_journal
from erasure.models import ErasureRequest, LegalHold
from erasure.person_erasure import check_erasable_person
from erasure.recorded_holds import HoldNotRecorded, digest_hold_words, load_recorded_holds
from erasure.word_match import (
    MAX_WORD_CHARACTERS,
    MAX_WORDS,
    MIN_WORD_CHARACTERS,
    WordMatcher,
    digest_word,
    normalize_text,
)
from journal import entries
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from sessions.models import Session

log = structlog.get_logger("gatebook.erasure")
MAX_REASON = 200
SIGNED: Final = "signed"  # the key of `progress` with the signature of the counts


def request_erasure(
    by: User,
    *,
    reason: str,
    project: Project | None,
    words: Sequence[str] = (),
    person: User | None = None,
    session: Session | None = None,
    keeps_decisions: bool = False,
) -> ErasureRequest:
    """Record a request, of which the job counts the preview. Raises ChangeRefused.

    `project` None covers every project.
    """
    reason, sought = _check_erasure_reason(reason), _check_words(words)
    kind = "person" if person is not None else "session" if session is not None else "words"
    if kind == "words" and not sought:
        raise ChangeRefused("There is nothing to search for. Enter one word or name a line.")
    if session is not None and session.project_id != (project.pk if project else None):
        raise ChangeRefused("The session is of another project. Open that project first.")
    _require_administrator(by, project, person)
    if person is not None:
        check_erasable_person(person)
    digests = [digest_word(word, settings.GATEBOOK_PEPPER) for word in sought]
    request_id = new_uuid7()
    with transaction.atomic(durable=True):
        facts = {"request": request_id.hex, "subject": kind, "words": len(sought)}
        facts["project"] = project.pk.hex if project is not None else None
        facts |= {"person": ensure_pseudonym(person)} if person is not None else {}
        facts["terms"] = digest_request_terms(
            digests, session.pk if session is not None else None, keeps_decisions=keeps_decisions
        )
        position = record_request_entry(
            "erasure.requested",
            request_id,
            list_covered_projects(project),
            actor=ensure_pseudonym(by),
            facts=facts,
            body={"reason": reason},
            session=session.pk if session is not None else None,
        )
        return ErasureRequest.objects.create(
            id=request_id,
            project=project,
            subject_kind=kind,
            person=person,
            session=session,
            words=sought,
            word_digests=digests,
            keeps_decisions=keeps_decisions,
            reason=reason,
            asked_by=by,
            asked_at_us=now_us(),
            requested_position=position,
        )


class RequestNotRecorded(Exception):
    """The journal does not have this request as its row is, or has no confirmation of it."""


def require_recorded_request(row: ErasureRequest) -> None:
    """Check a confirmed request against the journal, before anything is erased. Two queries.

    A row can be changed by the owner of the database; sealed entries cannot, without a trace.
    Raises RequestNotRecorded.
    """
    recorded = Entry.objects.filter(
        project__in=[project.pk for project in list_covered_projects(row.project)],
        source=entries.SYSTEM_SOURCE,
        lane="system",
    )
    requested = recorded.filter(position=row.requested_position, kind="erasure.requested").first()
    confirmed = recorded.filter(
        kind="erasure.confirmed", event_id=entries.keyed_digest("erasure.confirmed", row.id.hex)
    ).first()
    if requested is None or confirmed is None or row.confirmed_by is None:
        raise RequestNotRecorded(f"The journal has no confirmed request {row.id}. {_ASK_AGAIN}")
    if confirmed.actor in (requested.actor, "") or confirmed.actor != ensure_pseudonym(
        row.confirmed_by
    ):
        raise RequestNotRecorded(f"Another person confirmed the request {row.id}. {_ASK_AGAIN}")
    facts = json.loads(requested.facts)
    person = ensure_pseudonym(row.person) if row.person is not None else None
    digests = [digest_word(word, settings.GATEBOOK_PEPPER) for word in row.words]
    stored = {
        "request": row.id.hex,
        "subject": row.subject_kind,
        "project": row.project_id.hex if row.project_id is not None else None,
        "person": person,
        "terms": digest_request_terms(digests, row.session_id, keeps_decisions=row.keeps_decisions),
    }
    if "project" not in facts or stored != {name: facts.get(name) for name in stored}:
        raise RequestNotRecorded(f"The request {row.id} was not made like this. {_ASK_AGAIN}")


_ASK_AGAIN: Final = "Nothing was erased. Find who changed the row, then request the erasure again."


def digest_request_terms(
    digests: Sequence[dict[str, Any]], session: UUID | None, *, keeps_decisions: bool
) -> str:
    """Return what a request covers as a digest; `digests` are keyed, so it reveals no word."""
    # PostgreSQL keeps keys in an order of its own: length comes before digest, as when it was made.
    ordered = [dict(sorted(digest.items(), reverse=True)) for digest in digests]
    terms = [ordered, session.hex if session is not None else None, keeps_decisions]
    return hashlib.sha256(json.dumps(terms).encode()).hexdigest()


def confirm_erasure(request: UUID, by: User, shown: str) -> ErasureRequest:
    """Confirm a request with the counts that the person saw. Raises ChangeRefused.

    `shown` is the digest of those counts. The erasure journal gets its line before the commit:
    a crash in between leaves a line of a request that was never confirmed, and nothing is erased.
    """
    _recount_changed_preview(request, by)
    with transaction.atomic(durable=True):
        row = ErasureRequest.objects.select_for_update(of=("self",)).get(pk=request)
        if row.state != "counted":
            raise ChangeRefused("This request does not wait for a confirmation. Reload the page.")
        _require_confirmer(row, by)
        if digest_counts(row) != shown or not has_signed_counts(row):
            raise ChangeRefused("The preview has changed. Read it again, then confirm.")
        if row.person is not None:
            check_erasable_person(row.person)
            _refuse_held_person(row.person)
        now, actor = now_us(), ensure_pseudonym(by)
        record_request_entry(
            "erasure.confirmed",
            row.id,
            list_covered_projects(row.project),
            actor=actor,
            facts={"request": row.id.hex, "counts": sum_counts(row.counts)},
            body={},
        )
        row.state, row.confirmed_by, row.confirmed_at_us, row.progress = "confirmed", by, now, {}
        row.save()
    return row


def _require_confirmer(row: ErasureRequest, by: User) -> None:
    """Raise ChangeRefused unless the person may confirm the request."""
    if row.asked_by_id == by.pk:
        raise ChangeRefused("You asked for this erasure. Another administrator confirms it.")
    _require_administrator(by, row.project, row.person)


def _recount_changed_preview(request: UUID, by: User) -> None:
    """Let the job count a preview again that it did not count so. Raises ChangeRefused then.

    The owner of the database can lower the numbers that the second person reads, but cannot sign
    them: the pepper is in no table.
    """
    with transaction.atomic(durable=True):
        row = ErasureRequest.objects.select_for_update(of=("self",)).get(pk=request)
        if row.state != "counted" or has_signed_counts(row):
            return
        _require_confirmer(row, by)
        log.warning("erasure_preview_changed", request=str(row.id))
        _restart_count(row)
    raise ChangeRefused(
        "The numbers of this preview are not those that the job counted: somebody changed the row,"
        " or it is of an earlier version. It is counted again. Read the new numbers, then confirm."
    )


class RecordedCount(NamedTuple):
    """The last finished count of a request, as its entry has it; zeros before the first one."""

    position: int = 0
    after: int = 0  # the position of the count before
    preview: str = ""  # what `sign_counts` returned


def load_last_count(row: ErasureRequest) -> RecordedCount:
    """Return the last finished count of a request. One query."""
    rows = Entry.objects.filter(
        IS_OF_A_RARE_KIND,
        project__in=[project.pk for project in list_covered_projects(row.project)],
        kind="erasure.counted",
        lane="system",
        source=entries.SYSTEM_SOURCE,
    )
    for position, text in rows.order_by("-position").values_list("position", "facts"):
        facts = json.loads(text)
        if facts["request"] == row.id.hex:
            return RecordedCount(position, facts["after"], facts["preview"])
    return RecordedCount()


def sign_counts(row: ErasureRequest, after: int) -> str:
    """Return a keyed digest of what the job counted so far, for which request, and up to where.

    `after` is the position of the last finished count before this one: an earlier one is no part
    of it.
    """
    covered = [row.project_id, row.session_id, row.person_id]
    place = {name: value for name, value in row.progress.items() if name != SIGNED}
    counted = [
        *(str(value) for value in covered),
        *(row.words, row.keeps_decisions, row.counts, row.counted_at_us, place, after),
    ]
    return entries.keyed_digest("erasure.counts", row.id.hex, entries.dump_sorted_json(counted))


def has_signed_counts(row: ErasureRequest) -> bool:
    """Return True if the row has what the job signed: of this count, or the last finished one."""
    last = load_last_count(row)
    if row.state == "counting":
        return bool(row.progress.get(SIGNED) == sign_counts(row, last.position))
    return last.preview == sign_counts(row, last.after)


def write_journal_line(row: ErasureRequest) -> None:
    """Write the request into the erasure journal, before anything goes. Raises OSError."""
    person = Person.objects.get(user=row.person).pseudonym if row.person is not None else ""
    confirmer, asker = row.confirmed_by, row.asked_by
    words = list(row.word_digests)
    if row.person is not None:
        from erasure.row_scan import list_person_words

        own = [*list_person_words(row.person), row.person.get_username()]
        names = [digest_word(word, settings.GATEBOOK_PEPPER) for word in own[:-1]]
        words += [digest for digest in names if digest not in words]
    erasure_journal.append_line(
        "request",
        row.id,
        subject=row.subject_kind,
        project=row.project_id.hex if row.project_id else "",
        person=person,
        session=row.session_id.hex if row.session_id else "",
        words=words,
        keeps_decisions=row.keeps_decisions,
        reason=row.reason,
        asked_by=ensure_pseudonym(asker),
        confirmed_by=ensure_pseudonym(confirmer) if confirmer is not None else "",
        confirmed_at_us=row.confirmed_at_us,
        position=row.requested_position,
        pepper=erasure_journal.digest_pepper(),
    )


def withdraw_erasure(request: UUID, by: User) -> ErasureRequest:
    """End a request that nobody confirmed; its words go. Raises ChangeRefused."""
    with transaction.atomic(durable=True):
        row = ErasureRequest.objects.select_for_update(of=("self",)).get(pk=request)
        if row.state not in ("counting", "counted"):
            raise ChangeRefused("This request is confirmed or has ended. Reload the page.")
        record_request_entry(
            "erasure.withdrawn",
            row.id,
            list_covered_projects(row.project),
            actor=ensure_pseudonym(by),
            facts={"request": row.id.hex},
            body={},
        )
        row.state, row.words, row.progress = "withdrawn", [], {}
        row.save()
    return row


def count_again(request: UUID) -> None:
    """Count the preview of a request again. Raises ChangeRefused."""
    with transaction.atomic(durable=True):
        row = ErasureRequest.objects.select_for_update(of=("self",)).get(pk=request)
        if row.state != "counted":
            raise ChangeRefused("Only a request that waits for its confirmation is counted again.")
        _restart_count(row)


def _restart_count(row: ErasureRequest) -> None:
    row.state, row.progress, row.counts = "counting", {}, {}
    row.save()


def save_counts(row: ErasureRequest, **values: Any) -> None:
    """Store what was counted so far, signed: a second person will rely on it."""
    for name, value in values.items():
        setattr(row, name, value)
    row.progress[SIGNED] = sign_counts(row, load_last_count(row).position)
    row.save(update_fields=list(values))


def finish_count(row: ErasureRequest) -> None:
    """Let the preview be confirmed. Its entry tells it apart from every earlier one."""
    row.state, row.counted_at_us, row.progress, row.error = "counted", now_us(), {}, ""
    with transaction.atomic(durable=True):
        after = load_last_count(row).position
        preview = sign_counts(row, after)
        facts = {"counts": sum_counts(row.counts), "after": after, "preview": preview}
        record_request_entry(
            "erasure.counted",
            row.id,
            list_covered_projects(row.project),
            actor=entries.SYSTEM_SOURCE,
            facts={"request": row.id.hex, **facts},
            body={},
            session=row.session_id,
            number=str(after),
        )
        row.save(update_fields=["state", "counted_at_us", "progress", "error"])


def save_request(row: ErasureRequest, **values: Any) -> None:
    """Store what the job reached."""
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


def record_request_entry(
    kind: str,
    request: UUID,
    projects: Iterable[Project],
    *,
    actor: str,
    facts: dict[str, Any],
    body: dict[str, Any],
    session: UUID | None = None,
    number: str = "",
) -> int:
    """Append the entry of a request to the journal of each project; return the first position.

    `number` tells entries of the same kind apart.
    """
    named = [request.hex, number] if number else [request.hex]
    positions = [
        entries.record_system_entry(
            project.pk,
            kind,
            event_id=entries.keyed_digest(kind, *named),
            text=entries.dump_sorted_json({"kind": kind, **facts, **body}),
            received_us=now_us(),
            actor=actor,
            facts=entries.dump_sorted_json(facts),
            session=session,
        ).position
        for project in projects
    ]
    return positions[0]


def list_covered_projects(project: Project | None) -> list[Project]:
    """Return the projects of a request: its own, or all."""
    return [project] if project is not None else list(Project.objects.order_by("name"))


def sum_counts(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return how many rows of each class a request covers, without empty classes."""
    return {name: row["rows"] for name, row in counts.items() if row.get("rows")}


def sum_held(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return how many rows of each class a hold kept, without classes of which it kept none."""
    return {name: row["held"] for name, row in counts.items() if row.get("held")}


def digest_counts(row: ErasureRequest) -> str:
    """Return a digest of the preview, which binds a confirmation to what its page showed."""
    shown = entries.dump_sorted_json([row.id.hex, row.counts, row.counted_at_us, row.words])
    return hashlib.sha256(shown.encode()).hexdigest()[:32]


def can_confirm(row: ErasureRequest, by: User) -> bool:
    """Return True if the person may confirm the request now."""
    if row.state != "counted":
        return False
    try:
        _require_confirmer(row, by)
    except ChangeRefused:
        return False
    return True


def set_legal_hold(
    by: User,
    project: Project,
    *,
    reason: str,
    words: Sequence[str] = (),
    session: Session | None = None,
) -> LegalHold:
    """Keep a session, or texts with some words, from every erasure. Raises ChangeRefused."""
    reason, held = _check_erasure_reason(reason), _check_words(words)
    if session is None and not held:
        raise ChangeRefused("There is nothing to hold. Name a session, or enter words.")
    kind, held = ("session", []) if session is not None else ("words", held)
    with transaction.atomic(durable=True):
        position = entries.record_system_entry(
            project.pk,
            "erasure.hold_set",
            event_id=new_uuid7().hex,
            text=entries.dump_sorted_json({"kind": "erasure.hold_set", "reason": reason}),
            received_us=now_us(),
            actor=ensure_pseudonym(by),
            facts=entries.dump_sorted_json({"subject": kind, "words": digest_hold_words(held)}),
            session=session.pk if session is not None else None,
        ).position
        return LegalHold.objects.create(
            project=project,
            kind=kind,
            session=session,
            words=held,
            reason=reason,
            set_by=by,
            set_at_us=now_us(),
            set_position=position,
        )


def restore_erasure_requests(changes: Sequence[RowChange]) -> None:
    """Restore requests to what the journal gives (manage.py rebuild)."""
    write_row_changes(ErasureRequest, changes)


def restore_legal_holds(changes: Sequence[RowChange]) -> None:
    """Restore holds to what the journal gives (manage.py rebuild)."""
    write_row_changes(LegalHold, changes)


def release_legal_hold(hold: int, project: Project, by: User) -> None:
    """Release a hold; its words go. Raises ChangeRefused."""
    with transaction.atomic(durable=True):
        row = (
            LegalHold.objects.select_for_update(of=("self",))
            .filter(pk=hold, project=project, released_at_us=None)
            .first()
        )
        if row is None:
            raise ChangeRefused("This hold is already released. Reload the page.")
        entries.record_system_entry(
            project.pk,
            "erasure.hold_released",
            event_id=entries.keyed_digest("erasure.hold_released", str(row.set_position)),
            text=entries.dump_sorted_json({"kind": "erasure.hold_released"}),
            received_us=now_us(),
            actor=ensure_pseudonym(by),
            facts=entries.dump_sorted_json({"hold": row.set_position, "subject": row.kind}),
            session=row.session_id,
        )
        row.words, row.released_by, row.released_at_us = [], by, now_us()
        row.save()


def _refuse_held_person(person: User) -> None:
    """Raise ChangeRefused if a hold names the person: a hold wins."""
    try:
        holds = load_recorded_holds(None)
    except HoldNotRecorded as fault:
        raise ChangeRefused(str(fault)) from fault
    for hold in (hold for hold in holds if hold.kind == "words"):
        texts = (person.get_username(), person.email, person.get_full_name())
        if any(WordMatcher(hold.words).matches_text(text) for text in texts if text):
            raise ChangeRefused(
                f"Hold {hold.pk} of {hold.project.name} names this person. Release it first."
            )


def _require_administrator(by: User, project: Project | None, person: User | None) -> None:
    """Raise ChangeRefused unless `by` administers everything that a request covers.

    The trigger erasure_is_confirmed_by_an_administrator checks the same.
    """
    own = set(
        Membership.objects.filter(user=by, role="administrator").values_list("project", flat=True)
    )
    if person is not None:
        needed = set(Membership.objects.filter(user=person).values_list("project", flat=True))
    else:
        needed = set()
    if project is not None:
        needed.add(project.pk)
    elif person is None:
        needed |= set(Project.objects.values_list("pk", flat=True))
    if not own or not needed <= own:
        raise ChangeRefused(
            "You do not administer every project that this erasure covers. Ask a person who does."
        )
    if not by.is_active or not has_own_password(by):
        raise ChangeRefused("Choose a password of your own first (menu under your name).")


def _check_erasure_reason(reason: str) -> str:
    reason = " ".join(reason.split())
    if not reason or len(reason) > MAX_REASON or not reason.isprintable():
        raise ChangeRefused(f"A reason is 1 to {MAX_REASON} printable characters.")
    return reason


def _check_words(words: Sequence[str]) -> list[str]:
    sought = list(dict.fromkeys(word.strip() for word in words if word.strip()))
    if len(sought) > MAX_WORDS:
        raise ChangeRefused(f"A request names at most {MAX_WORDS} words. Make several requests.")
    for word in sought:
        size = len(normalize_text(word))
        if not MIN_WORD_CHARACTERS <= size <= MAX_WORD_CHARACTERS or not word.isprintable():
            raise ChangeRefused(
                f"{word[:40]!r} cannot be searched for. A word has {MIN_WORD_CHARACTERS} to"
                f" {MAX_WORD_CHARACTERS} printable characters."
            )
    return sought
