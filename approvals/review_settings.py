"""The one writer of ReviewSettings: a member's absence, and their daily digest.

An absence redirects what is assigned or mailed to the person. It never changes who may vote.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.audit_log import record_admin_entry
from accounts.models import ROLES, Membership
from accounts.people import ensure_pseudonym
from approvals.gates.statuses import US
from approvals.models import ReviewSettings
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes

DAY_US: Final = 86_400 * US
MAX_ABSENCE_US: Final = 366 * DAY_US


class Absence(NamedTuple):
    """Who is away until when, and who stands in; an empty name for no stand-in."""

    name: str
    until_us: int
    stand_in: int | None
    stand_in_name: str

    def __str__(self) -> str:
        # The end is midnight: the person is back on the day after.
        last = datetime.fromtimestamp((self.until_us - 1) / US, UTC).strftime("%A, %d %B")
        sentence = f"{self.name} is away until {last}"
        return f"{sentence}; {self.stand_in_name} stands in" if self.stand_in_name else sentence


@transaction.atomic
def save_absence(
    membership: Membership, from_us: int | None, until_us: int | None, stand_in: str
) -> None:
    """Store when the person is away and who stands in; no times end it. Raises ChangeRefused."""
    if from_us is None or until_us is None:
        from_us = until_us = None
        stand_in = ""
    elif not from_us < until_us <= from_us + MAX_ABSENCE_US:
        raise ChangeRefused("The last day is before the first one, or more than a year later.")
    elif until_us <= now_us():
        raise ChangeRefused("The last day is over. Choose today or a later day.")
    member = None
    if stand_in:
        member = list_reviewers(membership.project_id).filter(user__username=stand_in).first()
        if member is None or member.user_id == membership.user_id:
            raise ChangeRefused("Choose another reviewer of this project to stand in.")
    stored = _lock_settings(membership)
    stored.away_from_us, stored.away_until_us = from_us, until_us
    stored.stand_in = member.user if member is not None else None
    # The entry comes first: guards refuse settings without one (approval_guards.py).
    name = ensure_pseudonym(member.user) if member is not None else None
    facts = {"from_us": from_us, "until_us": until_us, "stand_in": name}
    _record(membership, "admin.absence_changed", facts, {})
    stored.save()


@transaction.atomic
def save_digest(membership: Membership, hour: int | None, address: str) -> None:
    """Store when the person gets the daily digest and where; None ends it."""
    stored = _lock_settings(membership)
    stored.digest_hour, stored.digest_address = hour, address if hour is not None else ""
    stored.digest_sent_us = now_us() if hour is not None else None
    words: dict[str, object] = {"address": stored.digest_address}
    _record(membership, "admin.digest_changed", {"hour": hour}, words)
    stored.save()


def restore_review_settings(changes: Sequence[RowChange]) -> None:
    """Restore reviewers' settings to what the journal gives (manage.py rebuild)."""
    write_row_changes(ReviewSettings, changes)


def claim_digest(settings: ReviewSettings, now: int) -> bool:
    """Mark a due digest as sent; False if another worker did."""
    unclaimed = ReviewSettings.objects.filter(
        id=settings.id, digest_hour=settings.digest_hour, digest_sent_us=settings.digest_sent_us
    )
    return bool(unclaimed.update(digest_sent_us=now))


def list_due_digests(now: int) -> list[ReviewSettings]:
    """Return the settings whose digest of today is due. One query."""
    start_us = now - now % DAY_US
    hour = (now - start_us) // (3600 * US)
    today, before = Q(digest_hour__lte=hour), Q(digest_sent_us__lt=start_us - DAY_US)
    due = ReviewSettings.objects.filter(digest_hour__isnull=False, digest_sent_us__lt=now)
    rows = due.filter(today | before).select_related("user", "project")
    return [
        row
        for row in rows
        if row.digest_sent_us is not None
        and row.digest_hour is not None
        and row.digest_sent_us < _find_due_us(row.digest_hour, now)
    ]


def _find_due_us(hour: int, now: int) -> int:
    """Return when a digest of this hour was due last."""
    due_us = now - now % DAY_US + hour * 3600 * US
    return due_us if due_us <= now else due_us - DAY_US


def load_absences(project: UUID, now: int | None = None) -> dict[int, Absence]:
    """Return by user who of a project is away now. One query.

    A stand-in counts while they are a reviewer and not away themselves.
    """
    now = now_us() if now is None else now
    away = list(
        ReviewSettings.objects.filter(
            project=project, away_from_us__lte=now, away_until_us__gt=now
        ).values_list("user", "user__username", "away_until_us", "stand_in", "stand_in__username")
    )
    if not away:
        return {}
    absent = {user for user, *_ in away}
    present = set(list_reviewers(project).values_list("user", flat=True)) - absent
    return {
        user: Absence(
            name,
            until_us,
            stand_in if stand_in in present else None,
            stand_in_name if stand_in in present else "",
        )
        for user, name, until_us, stand_in, stand_in_name in away
        if until_us is not None
    }


def redirect_users(project: UUID, users: Iterable[int]) -> set[int]:
    """Return the users, with stand-ins in place of those who are away."""
    absences = load_absences(project)
    return {absences[user].stand_in or user if user in absences else user for user in users}


def load_settings(membership: Membership) -> ReviewSettings:
    """Return the settings of a member; unsaved ones if nothing was set."""
    stored = ReviewSettings.objects.filter(
        project=membership.project_id, user=membership.user_id
    ).select_related("stand_in")
    return stored.first() or ReviewSettings(project=membership.project, user=membership.user)


def list_reviewers(project: UUID) -> "QuerySet[Membership]":
    """Return the active members of a project who may vote."""
    reviewing = ROLES[ROLES.index("reviewer") :]
    return Membership.objects.filter(
        project=project, role__in=reviewing, user__is_active=True
    ).select_related("user")


def _lock_settings(membership: Membership) -> ReviewSettings:
    ReviewSettings.objects.get_or_create(project=membership.project, user=membership.user)
    return ReviewSettings.objects.select_for_update().get(
        project=membership.project, user=membership.user
    )


def _record(
    membership: Membership,
    kind: str,
    facts: dict[str, str | int | None],
    words: dict[str, object],
) -> None:
    user: User = membership.user
    record_admin_entry(
        membership.project_id,
        kind,
        actor=ensure_pseudonym(user),
        subject=membership.id,
        facts={name: value for name, value in facts.items() if value is not None},
        words=words,
    )
