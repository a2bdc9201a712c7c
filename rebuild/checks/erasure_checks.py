"""Checks of erasure requests, legal holds and retention sets: what decides which texts go."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from accounts.models import SAMPLE_IDS
from db.yaml_reader import DocumentError
from erasure import erasure_requests, recorded_holds
from erasure.models import ErasureRequest, LegalHold
from erasure.word_match import digest_word
from journal.entries import keyed_digest
from rebuild.past_voters import PastVoters
from rebuild.project_journal import (
    EARLIER_VERSION,
    ERASED,
    ProjectEntry,
    load_installation_entries,
    load_project_entries,
    match_clock,
)
from rebuild.project_names import read_user
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check
from retention import retention_sets
from retention.models import RetentionSet
from retention.retention_yaml import parse_retention

_REQUESTS: Final = tuple(
    f"erasure.{step}" for step in ("requested", "confirmed", "withdrawn", "executed")
)
_HOLDS: Final = ("erasure.hold_set", "erasure.hold_released")
_SETS: Final = ("retention.loaded", "retention.activated")
_CLOCK: Final = "the clock of the row"
_PROGRESS: Final = "how far the job came"
UNKNOWN_WORDS: Final = ["(unknown: set this hold again)"]
UNKNOWN_REQUEST_WORDS: Final = ["(unknown: request the erasure again)"]
UNKNOWN_DIGESTS: Final = [{"length": 0, "digest": "unknown"}]


def _fold_requests(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield each request. One of every project has its entries in each; the first ones count."""
    courses: dict[str, dict[str, ProjectEntry]] = {}
    confirmed: dict[str, list[ProjectEntry]] = {}
    for entry in load_installation_entries(_REQUESTS):
        request = entry.facts.get("request")  # None where a body was erased alone
        # Imported entries of another installation have event ids under its key.
        if request is not None and entry.event_id == keyed_digest(entry.kind, request):
            courses.setdefault(request, {}).setdefault(entry.kind, entry)
            if entry.kind == "erasure.confirmed":
                confirmed.setdefault(request, []).append(entry)
    stored = {row["id"]: row for row in ErasureRequest.objects.values()}
    for request, course in courses.items():
        if "erasure.requested" in course:
            row = _fold_request(batch, course, stored.get(UUID(request), {}))
            if not _was_confirmed_by_second(
                course["erasure.requested"], confirmed.get(request, ())
            ):
                row.faults["confirmed_by_id"] = "unfounded"
            yield row


def _was_confirmed_by_second(requested: ProjectEntry, confirmed: Sequence[ProjectEntry]) -> bool:
    """Return False if the confirmation is by the same person, or by no administrator of a project.

    Who confirms the erasure of a person administers the projects of that person only, which no
    entry lists; a sample project has entries of its own. Everybody who confirms has an open
    account.
    """
    covers_projects = requested.facts["subject"] != "person" or requested.facts.get("project")
    for entry in confirmed:
        voters = PastVoters(RebuildBatch(entry.project))
        needs_role = covers_projects and entry.project.int not in SAMPLE_IDS
        if (
            entry.actor == requested.actor
            or not voters.had_account(entry.actor, entry)
            or (needs_role and not voters.had_role(entry.actor, ("administrator",), entry))
        ):
            return False
    return True


def _fold_request(
    batch: RebuildBatch, course: Mapping[str, ProjectEntry], stored: Mapping[str, Any]
) -> FoldedRow:
    requested, unknown = course["erasure.requested"], dict[str, str]()
    confirmed, executed = course.get("erasure.confirmed"), course.get("erasure.executed")
    is_replayed = executed is not None and "replayed" in executed.facts
    facts, project = requested.facts, requested.facts.get("project")
    if "project" not in facts:
        unknown["project_id"] = EARLIER_VERSION
    states = _list_possible_states(course, is_replayed=is_replayed)
    state = stored.get("state")
    digests, keeps_decisions = _find_terms(requested, stored, unknown)
    values = {
        "id": UUID(facts["request"]),
        "project_id": UUID(project) if project else None,
        "subject_kind": facts["subject"],
        "person_id": read_user(batch, facts.get("person"), unknown, "person_id"),
        "session_id": requested.session,
        "words": [],
        "word_digests": digests,
        "keeps_decisions": keeps_decisions,
        "reason": requested.read("reason", unknown),
        "state": state if state in states else states[0],
        "asked_by_id": read_user(batch, requested.actor, unknown, "asked_by_id"),
        "asked_at_us": match_clock(stored.get("asked_at_us"), requested),
        "requested_position": requested.position,
        "confirmed_by_id": None,
        "confirmed_at_us": None,
        "executed_position": None,
        "executed_at_us": None,
    }
    if values["state"] not in ("scrubbing", "done", "withdrawn"):
        words = stored.get("words", [])
        has_its_words = [digest_word(word, settings.GATEBOOK_PEPPER) for word in words] == digests
        values["words"] = words if has_its_words else UNKNOWN_REQUEST_WORDS
    if confirmed is not None:
        values["confirmed_by_id"] = read_user(batch, confirmed.actor, unknown, "confirmed_by_id")
        values["confirmed_at_us"] = match_clock(stored.get("confirmed_at_us"), confirmed)
    if executed is not None and not is_replayed:
        values["executed_position"] = executed.position
        values["executed_at_us"] = match_clock(stored.get("executed_at_us"), executed)
    last = max(entry.position for entry in course.values())
    row = FoldedRow((values["id"],), values, last, unknown)
    if state in ("counted", "confirmed") and not _has_recorded_preview(ErasureRequest(**stored)):
        row.faults["counts"] = "altered"
    if executed is not None and not is_replayed and stored:
        _compare_erased_counts(row, executed, stored["erased_counts"])
    return row


def _compare_erased_counts(row: FoldedRow, executed: ProjectEntry, stored: Any) -> None:
    """Compare what was erased with the sums that `erasure.executed` has."""
    facts = executed.facts
    if "counts" in facts and erasure_requests.sum_counts(stored) != facts["counts"]:
        row.faults["erased_counts"] = "altered"
    if "held" in facts and erasure_requests.sum_held(stored) != facts["held"]:
        row.faults["erased_counts"] = "altered"


def _has_recorded_preview(row: ErasureRequest) -> bool:
    """Return True if the preview is the last that the job counted, or of an earlier version."""
    is_recorded = erasure_requests.load_last_count(row).position > 0
    return not is_recorded or erasure_requests.has_signed_counts(row)


def _list_possible_states(
    course: Mapping[str, ProjectEntry], *, is_replayed: bool
) -> tuple[str, ...]:
    """Return the states that a request may have after its entries, the first of them first."""
    if "erasure.withdrawn" in course or is_replayed:
        return ("withdrawn",)
    if "erasure.executed" in course:
        return ("scrubbing", "done")
    if "erasure.confirmed" in course:
        return ("confirmed", "running")
    return ("counting", "counted")


def _find_terms(
    requested: ProjectEntry, stored: Mapping[str, Any], unknown: dict[str, str]
) -> tuple[list[dict[str, Any]], bool]:
    """Return the digests of the words and `keeps_decisions`; the entry has a digest of both."""
    digests, keeps = stored.get("word_digests", []), bool(stored.get("keeps_decisions"))
    if "terms" not in requested.facts:
        unknown |= dict.fromkeys(("word_digests", "keeps_decisions"), EARLIER_VERSION)
        return digests, keeps
    for choice in (keeps, not keeps):
        terms = erasure_requests.digest_request_terms(
            digests, requested.session, keeps_decisions=choice
        )
        if terms == requested.facts["terms"]:
            return digests, choice
    return UNKNOWN_DIGESTS, keeps


def _fold_holds(batch: RebuildBatch) -> Iterator[FoldedRow]:
    rows = _select_holds(batch).values_list("set_position", "words", "set_at_us", "released_at_us")
    stored = {position: values for position, *values in rows}
    entries = load_project_entries(batch, _HOLDS)
    ended = {
        entry.facts["hold"]: entry for entry in entries if entry.kind == "erasure.hold_released"
    }
    for entry in entries:
        if entry.kind != "erasure.hold_set":
            continue
        unknown: dict[str, str] = {}
        end = ended.get(entry.position)
        words, set_at_us, released_at_us = stored.get(entry.position, ([], None, None))
        if end is not None:
            words = []
        if end is None and "words" not in entry.facts:
            unknown["words"] = EARLIER_VERSION
        elif end is None and entry.facts["words"] != recorded_holds.digest_hold_words(words):
            words = UNKNOWN_WORDS  # the entry has their digest only
        values = {
            "project_id": batch.project,
            "kind": entry.facts["subject"],
            "session_id": entry.session,
            "words": words,
            "reason": entry.read("reason", unknown),
            "set_by_id": read_user(batch, entry.actor, unknown, "set_by_id"),
            "set_at_us": match_clock(set_at_us, entry),
            "set_position": entry.position,
            "released_at_us": None if end is None else match_clock(released_at_us, end),
            "released_by_id": None
            if end is None
            else read_user(batch, end.actor, unknown, "released_by_id"),
        }
        yield FoldedRow((entry.position,), values, (end or entry).position, unknown)


def fold_retention_sets(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield each loaded set, with its last activation."""
    rows = _select_sets(batch).values_list("id", "text")
    texts, folded = dict(rows), dict[UUID, FoldedRow]()
    for entry in load_project_entries(batch, _SETS, of_archives=True):
        if entry.subject is None:
            continue
        if entry.kind == "retention.loaded":
            folded[entry.subject] = _fold_loaded_set(
                batch, entry.subject, entry, texts.get(entry.subject, "")
            )
        elif row := folded.get(entry.subject):
            row.values |= {"activated_by": entry.actor, "activation_position": entry.position}
            row.position = entry.position
    yield from folded.values()


def _fold_loaded_set(
    batch: RebuildBatch, identity: UUID, entry: ProjectEntry, stored_text: str
) -> FoldedRow:
    unknown: dict[str, str] = {}
    text: str = stored_text
    if retention_sets.digest_set_text(stored_text) != entry.facts["sha256"]:
        text = (entry.body or {}).get("text") or "(erased: load the set again)\n"
    try:
        rules = json.loads(json.dumps(parse_retention(text)))
    except DocumentError:
        rules = {}
        unknown["rules"] = ERASED if entry.body is None else EARLIER_VERSION
    values = {
        "id": identity,
        "project_id": batch.project,
        "name": entry.read("name", unknown),
        "version": entry.facts["version"],
        "text": text,
        "sha256": entry.facts["sha256"],
        "rules": rules,
        "loaded_by": entry.actor,
        "activated_by": "",
        "activation_position": None,
    }
    return FoldedRow((identity,), values, entry.position, unknown)


def _select_requests(_batch: RebuildBatch) -> "QuerySet[Any]":
    return ErasureRequest.objects.all()


def _select_holds(batch: RebuildBatch) -> "QuerySet[Any]":
    return LegalHold.objects.filter(project=batch.project)


def _select_sets(batch: RebuildBatch) -> "QuerySet[Any]":
    return RetentionSet.objects.filter(project=batch.project)


def _insert_set(row: FoldedRow) -> dict[str, Any]:
    """Return what the columns of a missing set are set to that no entry gives."""
    is_active = row.values["activation_position"] is not None
    moments = ("counted_at_us", "activated_at_us") if is_active else ()
    return {"name": row.values["name"] or "erased", "loaded_at_us": 0, **dict.fromkeys(moments, 0)}


def register_erasure_checks() -> None:
    """Register the checks of erasure requests, legal holds and retention sets."""
    checks = (
        RowCheck(
            ErasureRequest,
            ("id",),
            "installation",
            _fold_requests,
            _select_requests,
            erasure_requests.restore_erasure_requests,
            {
                "counted_at_us": "the clock of the preview, in the digest of its counts",
                "scrubbed_at_us": "when the database's files were rewritten, which no entry has",
                "counts": "the preview, of which `erasure.counted` has a digest",
                "erased_counts": "what the job counted; `erasure.executed` has its sums",
                **dict.fromkeys(("progress", "error"), _PROGRESS),
            },
        ),
        RowCheck(
            LegalHold,
            ("set_position",),
            "project",
            _fold_holds,
            _select_holds,
            erasure_requests.restore_legal_holds,
            {"id": "a number of the table, to which nothing refers"},
            lambda row: {"words": row.values["words"] or []},
        ),
        RowCheck(
            RetentionSet,
            ("id",),
            "project",
            fold_retention_sets,
            _select_sets,
            retention_sets.restore_retention_sets,
            {
                **dict.fromkeys(("loaded_at_us", "activated_at_us", "run_at_us"), _CLOCK),
                **dict.fromkeys(
                    ("dry_run", "counted_position", "counted_end", "counted_at_us"),
                    "a count for people, which is repeated before a set is activated",
                ),
                **dict.fromkeys(
                    ("progress", "holds_released"),
                    "how far the job came; it compares the set with the journal first",
                ),
            },
            _insert_set,
        ),
    )
    for check in checks:
        register_row_check(check.table, check)
