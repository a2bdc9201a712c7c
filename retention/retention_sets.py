"""The one writer of RetentionSet: load, activate and read retention sets."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max, Q

from accounts.audit_log import record_admin_entry
from accounts.models import Project
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from erasure.models import LegalHold
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from proofs.stable_position import load_stable_position
from retention.models import RetentionSet
from retention.retention_yaml import list_finite_classes, parse_retention


@transaction.atomic(savepoint=False)
def load_retention_set(project: Project, text: str, actor: str = SYSTEM_SOURCE) -> RetentionSet:
    """Store `text` as the next version under its name; activates nothing.

    The same text again returns the existing set. Raises DocumentError.
    """
    rules, digest = parse_retention(text), digest_set_text(text)
    Project.objects.select_for_update(no_key=True).only("id").get(pk=project.pk)
    existing = RetentionSet.objects.filter(project=project, sha256=digest).first()
    if existing is not None:
        return existing
    earlier = RetentionSet.objects.filter(project=project, name=rules["name"]).aggregate(
        latest=Max("version")
    )
    row = RetentionSet(
        project=project,
        name=rules["name"],
        version=(earlier["latest"] or 0) + 1,
        text=text,
        sha256=digest,
        rules=rules,
        loaded_by=actor,
        loaded_at_us=now_us(),
        counted_end=load_stable_position(),
    )
    record_admin_entry(
        project.pk,
        "retention.loaded",
        actor=actor,
        subject=row.id,
        facts={"version": row.version, "rules": len(rules["rules"]), "sha256": digest},
        words={"name": row.name, "text": text},
    )
    row.save(force_insert=True)
    return row


def digest_set_text(text: str) -> str:
    """Return the SHA-256 of a set's text, as its entry and its row have it."""
    return hashlib.sha256(text.encode()).hexdigest()


def restore_retention_sets(changes: Sequence[RowChange]) -> None:
    """Restore sets to what the journal gives (manage.py rebuild)."""
    write_row_changes(RetentionSet, changes)


def activate_retention_set(
    retention_set: UUID, project: Project, shown_at_us: int | None, actor: str = SYSTEM_SOURCE
) -> RetentionSet:
    """Put a counted set in force; it replaces the one before. Raises ChangeRefused.

    `shown_at_us` is the time of the dry run that the person saw.
    """
    with transaction.atomic(durable=True):
        Project.objects.select_for_update(no_key=True).only("id").get(pk=project.pk)
        row = RetentionSet.objects.select_for_update().get(pk=retention_set, project=project)
        if not row.is_counted:
            raise ChangeRefused("This set is not counted yet. Wait for its counts, then repeat.")
        if row.counted_at_us != shown_at_us:
            raise ChangeRefused("The set was counted again. Read the new counts, then repeat.")
        before = load_active_set(project.pk)
        if before is not None and before.pk == row.pk:
            return row
        row.activation_position = record_admin_entry(
            project.pk,
            "retention.activated",
            actor=actor,
            subject=row.id,
            facts={"version": row.version, "set_before": before.pk.hex if before else None},
            words={"name": row.name},
        )
        row.activated_by, row.activated_at_us = actor, now_us()
        row.progress, row.run_at_us = {}, None
        row.holds_released = count_released_holds(project.pk)
        row.save()
    return row


def load_active_set(project: UUID) -> RetentionSet | None:
    """Return the set in force; None if none was ever activated."""
    return (
        RetentionSet.objects.filter(project=project, activation_position__isnull=False)
        .order_by("-activation_position")
        .first()
    )


class SetNotRecorded(Exception):
    """The set in force is not what the journal says was loaded and activated."""


def require_recorded_set(row: RetentionSet) -> None:
    """Check the set in force against the journal, before anything expires. Three queries.

    A row can be changed by the owner of the database; sealed entries cannot, without a trace.
    Raises SetNotRecorded.
    """
    recorded = Entry.objects.filter(IS_OF_A_RARE_KIND, project=row.project_id, lane="system")
    loaded = recorded.filter(kind="retention.loaded", subject=row.id).values_list("facts").first()
    if loaded is None or json.loads(loaded[0]).get("sha256") != digest_set_text(row.text):
        raise SetNotRecorded(f"{row} is not the text that retention.loaded records. {_LOAD_AGAIN}")
    if json.loads(json.dumps(parse_retention(row.text))) != row.rules:
        raise SetNotRecorded(f"The rules of {row} are not those of its text. {_LOAD_AGAIN}")
    activations = recorded.filter(kind="retention.activated").order_by("-position")
    if activations.values_list("subject", "position").first() != (row.id, row.activation_position):
        raise SetNotRecorded(f"{row} is not the set that was activated last. {_LOAD_AGAIN}")


_LOAD_AGAIN: Final = "Nothing was removed. Find who changed the row, then activate a set again."


def list_due_dry_runs() -> list[RetentionSet]:
    """Return the sets whose dry run is not complete."""
    due = RetentionSet.objects.filter(
        Q(counted_at_us=None) | Q(counted_position__lt=F("counted_end"))
    )
    return list(due.order_by("loaded_at_us")[:20])


def repeat_dry_run(retention_set: UUID, project: Project) -> None:
    """Let the job count a set again, over the journal as it is now.

    A set that is or was in force keeps the time of its last count until the new one is complete.
    """
    with transaction.atomic(durable=True):
        row = RetentionSet.objects.select_for_update().get(pk=retention_set, project=project)
        if row.activation_position is None:
            row.counted_at_us = None
        begin_dry_run(row)
        row.save()


def begin_dry_run(row: RetentionSet) -> None:
    """Let the next count begin at the journal's start; the caller saves."""
    row.dry_run, row.counted_position = {}, 0
    row.counted_end = load_stable_position()


# Kinds of entries after which the counts of a dry run are no longer what a run would remove.
_CHANGES: Final = {
    "erasure.hold_set": "a legal hold was set",
    "erasure.hold_released": "a legal hold was released",
    "erasure.executed": "an erasure ran",
    "retention.expired": "texts expired",
}


class LaterChange(NamedTuple):
    """What happened after a set was counted, and the newest entry that says so."""

    words: str
    position: int
    at_us: int


def list_later_changes(row: RetentionSet) -> list[LaterChange]:
    """Return what makes the counts of a set old: holds, releases, erasures, runs. One query.

    The journal's end when the count began decides, so that a hold which was set during the count
    is named too.
    """
    newest = Entry.objects.filter(
        IS_OF_A_RARE_KIND,
        project=row.project_id,
        kind__in=list(_CHANGES),
        lane="system",
        position__gt=row.counted_end,
    )
    changes = {
        kind: (position, at_us)
        for kind, position, at_us in newest.order_by()
        .values_list("kind")
        .annotate(Max("position"), Max("received_us"))
    }
    return [
        LaterChange(words, *changes[kind]) for kind, words in _CHANGES.items() if kind in changes
    ]


def save_set(row: RetentionSet, **values: Any) -> None:
    """Store what the job reached."""
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


def restart_after_release(row: RetentionSet) -> None:
    """Begin again at the journal's start when a hold was released, or a class is new."""
    released = count_released_holds(row.project_id)
    if released != row.holds_released:
        save_set(row, progress={}, holds_released=released)


def count_released_holds(project: UUID) -> int:
    """Return how many holds of the project were released so far."""
    return LegalHold.objects.filter(project=project, released_at_us__isnull=False).count()


def describe_class(row: RetentionSet, name: str) -> str:
    """Return the words for a class, as every expired body keeps them."""
    return f"class {name}, kept {list_finite_classes(row.rules)[name]}"
