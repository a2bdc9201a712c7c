"""Repeats the erasures of the erasure journal on a database that was restored from a backup.

Words are found by their keyed digests, bodies by position and commitment, bytes by keyed digests of
their hashes. Repeating is harmless.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

import structlog
from django.contrib.auth.models import User

from accounts.models import Project
from db import retry
from erasure import erasure_files, erasure_journal, person_erasure, storage_scrub
from erasure.erasure_requests import list_covered_projects, record_request_entry, save_request
from erasure.erasure_runner import BATCH_ROWS
from erasure.models import ErasureRequest, LegalHold
from erasure.recorded_holds import HoldNotRecorded, load_recorded_holds, load_stored_holds
from erasure.row_erasure import ErasureOrder, erase_entry_body, erase_matches
from erasure.row_scan import Subject, build_digest_subject, find_window, split_holds
from erasure.text_columns import TEXT_TABLES
from erasure.word_match import WordMatcher
from journal import entries
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry
from sessions import artifacts
from sessions.models import Artifact, Session

log = structlog.get_logger("gatebook.erasure")
_CARRIED_OUT: Final = ("confirmed", "running", "scrubbing", "done")


@dataclass(slots=True)
class JournalledErasure:
    """The lines of one request."""

    terms: dict[str, Any]
    bodies: list[tuple[int, str]] = field(default_factory=list)
    artifacts: set[str] = field(default_factory=set)

    @property
    def request(self) -> UUID:
        """The id of the request."""
        return UUID(self.terms["request"])


@dataclass(frozen=True, slots=True)
class JournalledBody:
    """A body that was erased alone."""

    position: int
    commitment: str  # its first 16 digits
    reason: str
    actor: str


@dataclass(slots=True)
class ReplayResult:
    """What a replay did with one request: numbers of rows, bodies and files."""

    request: UUID | None  # None: bodies that were erased one by one
    counts: dict[str, int]
    other_pepper: bool = False
    unrecorded_hold: str = ""  # how a legal hold differs from its entry


def read_journalled_erasures() -> list[JournalledErasure]:
    """Return the confirmed requests of the erasure journal, in order."""
    requests: dict[str, JournalledErasure] = {}
    for line in erasure_journal.read_lines():
        if line["line"] == "request":
            requests.setdefault(line["request"], JournalledErasure(line))
        elif line.get("request") in requests:
            erasure = requests[line["request"]]
            erasure.bodies += [
                (int(place), str(digest)) for place, digest in line.get("entries", ())
            ]
            erasure.artifacts |= {line["artifact"]} if "artifact" in line else set()
    return list(requests.values())


def find_returned_bodies() -> list[JournalledBody]:
    """Return the bodies that were erased alone and that this database holds."""
    listed = {
        (line["entry"], line["commit"]): JournalledBody(
            int(line["entry"]), str(line["commit"]), str(line["reason"]), str(line["actor"])
        )
        for line in erasure_journal.read_lines()
        if line["line"] == "body"
    }
    bodies, returned = [*listed.values()], []
    for start in range(0, len(bodies), BATCH_ROWS):
        batch = bodies[start : start + BATCH_ROWS]
        stored = dict(
            Entry.objects.filter(
                position__in=[body.position for body in batch], body__isnull=False
            ).values_list("position", "body_commit")
        )
        returned += [
            body
            for body in batch
            if erasure_journal.shorten_commitment(stored.get(body.position)) == body.commitment
        ]
    return returned


def find_missing_erasures() -> list[JournalledErasure]:
    """Return the requests of the erasure journal that this database has not carried out."""
    missing = []
    recorded = Entry.objects.filter(project__in=Project.objects.values("pk"), source=SYSTEM_SOURCE)
    for erasure in read_journalled_erasures():
        event_id = entries.keyed_digest("erasure.executed", erasure.request.hex)
        is_done = recorded.filter(event_id=event_id).exists()
        row = ErasureRequest.objects.filter(pk=erasure.request, state__in=_CARRIED_OUT)
        if not is_done and not row.exists():
            missing.append(erasure)
    return missing


def count_unjournalled_erasures() -> int:
    """Return how many finished requests of the database the erasure journal lacks."""
    written = {erasure.request for erasure in read_journalled_erasures()}
    finished = ErasureRequest.objects.filter(state__in=("scrubbing", "done"))
    return sum(request not in written for request in finished.values_list("pk", flat=True))


def replay_erasures(
    report: Callable[[ReplayResult], object] = lambda _result: None,
) -> list[ReplayResult]:
    """Repeat every erasure that this database lacks; return what was erased from its rows."""
    results = []
    storage_scrub.prepare_connection()
    for erasure in find_missing_erasures():
        results.append(_replay_erasure(erasure))
        report(results[-1])
    if bodies := find_returned_bodies():
        erased = sum(
            _erase_listed_bodies(
                [(body.position, body.commitment)], ErasureOrder(body.actor, body.reason)
            )
            for body in bodies
        )
        results.append(ReplayResult(None, {"bodies": erased}))
        report(results[-1])
    return results


def scrub_replayed_storage() -> str:
    """Rewrite the files after a replay; return why it must be repeated, or an empty text."""
    tables = [table.model._meta.db_table for table in TEXT_TABLES if table.erasable]
    return storage_scrub.scrub_storage(tables, most_bytes=None)


def _replay_erasure(erasure: JournalledErasure) -> ReplayResult:
    terms, counts = erasure.terms, defaultdict[str, int](int)
    other_pepper = terms["pepper"] != erasure_journal.digest_pepper()
    order = ErasureOrder(SYSTEM_SOURCE, f"erasure {terms['position']}: {terms['reason']}"[:200])
    project_id = UUID(terms["project"]) if terms["project"] else None
    project = Project.objects.filter(pk=project_id).first() if project_id else None
    result = ReplayResult(erasure.request, counts, other_pepper)
    if project_id is not None and project is None:
        return result  # the backup is older than the project
    counts["bodies"] += _erase_listed_bodies(erasure.bodies, order)
    person = User.objects.filter(person__pseudonym=terms["person"]).first()
    if terms["person"] and person is not None:
        retry.run_with_retry(lambda: person_erasure.end_person_access(person, actor=order.actor))
    subject = _build_subject(terms, project_id, person, result)
    if subject is not None:
        _erase_tables(subject, order, counts)
        counts["exports"] += erasure_files.stop_exports(project_id)
        for mail in erasure_files.find_mail_files(subject):
            mail.unlink(missing_ok=True)
            counts["notifications"] += 1
    counts["artifacts"] += _erase_listed_artifacts(erasure.artifacts)

    def finish() -> None:
        if person is not None:
            person_erasure.erase_account(person)
        row = ErasureRequest.objects.filter(pk=erasure.request).first()
        record_request_entry(
            "erasure.executed",
            erasure.request,
            list_covered_projects(project),
            actor=order.actor,
            facts={"request": terms["request"], "counts": dict(counts), "replayed": True},
            body={},
        )
        if row is not None:  # the backup was taken before its confirmation
            save_request(row, state="withdrawn", words=[], progress={})

    retry.run_with_retry(finish)
    return result


def _build_subject(
    terms: dict[str, Any], project: UUID | None, person: User | None, result: ReplayResult
) -> Subject | None:
    """Return what the lines of a request name; None if this database has nothing of it."""
    session = UUID(terms["session"]) if terms["session"] else None
    if session is not None and not Session.objects.filter(pk=session).exists():
        return None
    subject = build_digest_subject(terms["words"], project=project, session=session)
    sessions, words = split_holds(_load_replay_holds(project, result))
    return replace(
        subject,
        user=person.pk if person is not None else None,
        pseudonym=terms["person"],
        username=person.get_username() if person is not None else "",
        keeps_decisions=bool(terms["keeps_decisions"]),
        held_sessions=sessions,
        held_words=WordMatcher(words) if words else None,
    )


def _load_replay_holds(project: UUID | None, result: ReplayResult) -> list[LegalHold]:
    """Return the holds in force, also if they differ from their entries, as with another pepper.

    Gatebook does not start before the replay has ended, so that no one could set them again first;
    and the erasure was carried out once already, under the holds of that time.
    """
    try:
        return load_recorded_holds(project)
    except HoldNotRecorded as fault:
        log.warning(
            "replay_with_unrecorded_holds", request=str(result.request), reason=fault.difference
        )
        result.unrecorded_hold = fault.difference
        return load_stored_holds(project)


def _erase_listed_bodies(listed: Iterable[tuple[int, str]], order: ErasureOrder) -> int:
    """Erase bodies by position, where the entry is the same one as then."""
    erased = 0
    for position, digest in listed:
        entry = Entry.objects.filter(position=position, body__isnull=False).first()
        if entry is None or erasure_journal.shorten_commitment(entry.body_commit) != digest:
            continue

        def work(entry: Entry = entry) -> None:
            erase_entry_body(entry, reason=order.reason, actor=order.actor)

        retry.run_with_retry(work)
        erased += 1
    return erased


def _erase_tables(subject: Subject, order: ErasureOrder, counts: dict[str, int]) -> None:
    for table in TEXT_TABLES:
        if not table.erasable:
            continue
        after, is_last = None, False
        while not is_last:
            window = find_window(table, subject, after)
            matches = [m for m in window.matches if m.columns and not m.is_held]
            for start in range(0, len(matches), BATCH_ROWS):
                batch = matches[start : start + BATCH_ROWS]

                def work(batch: list[Any] = batch, table: Any = table) -> None:
                    erase_matches(table, subject, batch, order)

                retry.run_with_retry(work)
            counts[table.text_class] += len(matches)
            after, is_last = window.last, window.last is None


def _erase_listed_artifacts(digests: set[str]) -> int:
    erased = 0
    if not digests:
        return 0
    # Also those that are not stored: a replay that was killed may have left their files.
    contents = Artifact.objects.order_by().values_list("project", "sha256").distinct()
    for project, sha256 in contents:
        if erasure_journal.digest_artifact(project, sha256) in digests:
            erased += artifacts.delete_content(project, sha256)
    return erased
