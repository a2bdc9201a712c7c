"""The one writer of StuckEpisode: episodes of stuck rules.

An episode is seen, raised and cleared; people can assign and snooze it.
A transition, its journal entry and its outbox row are one transaction: a crash leaves all or none,
and the next evaluation completes what is missing.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import OuterRef, Subquery

from accounts.audit_log import record_admin_entry
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.ids import new_uuid7
from display.effect_headline import Moment, Sentence
from journal import entries, outbox
from journal.entries import SYSTEM_SOURCE, Draft
from journal.models import Body
from monitoring.models import StuckEpisode
from monitoring.stuck.rules import RULES_VERSION, RuleResult
from sessions.models import ENDED, Session

TOPIC: Final = "stuck"
STUCK_KINDS: Final = ("session.stuck", "session.recovered")  # of entries
AT_ONCE: Final = 500  # transitions in one transaction
PER_SUBJECT_RULES: Final = frozenset({"S4", "S6"})  # an effect, a gate
EpisodeKey = tuple[str, UUID, int]  # rule, subject, epoch


class ActiveRule(NamedTuple):
    """A rule that is true, with the ids to store."""

    project: UUID
    session: UUID | None
    reason: RuleResult

    @property
    def key(self) -> EpisodeKey:
        """The identity of the episode."""
        return self.reason.rule, self.reason.subject, self.reason.epoch


def episode_key(row: StuckEpisode) -> EpisodeKey:
    """Return the identity of a stored episode, as `ActiveRule.key`."""
    return row.rule, row.subject, row.epoch


def load_episodes(project: UUID) -> list[StuckEpisode]:
    """Load the open episodes of a project, oldest first, with the text of a snooze. One query."""
    rows = StuckEpisode.objects.filter(project=project, cleared_us__isnull=True).select_related(
        "owner"
    )
    text = Subquery(Body.objects.filter(entry=OuterRef("snoozed_position")).values("text"))
    return list(rows.annotate(snoozed_text=text).order_by("since_us", "id"))


def store_episodes(active_rules: Iterable[ActiveRule], evaluation: int, at_us: int) -> None:
    """Store episodes that begin. Ignores those that another evaluation has stored."""
    rows = [
        StuckEpisode(
            project_id=item.project,
            session_id=item.session,
            rule=item.reason.rule,
            subject=item.reason.subject,
            epoch=item.reason.epoch,
            since_us=item.reason.since_us,
            seen_us=at_us,
            seen_sweep=evaluation,
            says=sentence_to_json(item.reason.says),
        )
        for item in active_rules
    ]
    StuckEpisode.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def raise_episodes(rows: Sequence[StuckEpisode], at_us: int) -> int:
    """Raise episodes, each once: entry, row and outbox row together. Return how many it raised."""
    return sum(
        _record_transition(rows[n : n + AT_ONCE], "session.stuck", at_us)
        for n in range(0, len(rows), AT_ONCE)
    )


def clear_episodes(rows: Sequence[StuckEpisode], at_us: int) -> int:
    """Clear raised episodes, each once. Return how many this call cleared."""
    return sum(
        _record_transition(rows[n : n + AT_ONCE], "session.recovered", at_us)
        for n in range(0, len(rows), AT_ONCE)
    )


@transaction.atomic
def _record_transition(rows: Sequence[StuckEpisode], kind: str, at_us: int) -> int:
    raising = kind == "session.stuck"
    open_episodes = StuckEpisode.objects.filter(
        id__in=[row.id for row in rows], cleared_us__isnull=True, raised_us__isnull=raising
    )
    locked = list(
        open_episodes.select_for_update(skip_locked=connection.vendor == "postgresql").order_by(
            "id"
        )
    )
    if not locked:
        return 0
    ended = {} if raising else _end_reasons(locked)
    whys = ["" if raising else ended.get(row.session_id, PROGRESS) for row in locked]
    results = entries.append_entries(
        [_draft(row, kind, at_us, why) for row, why in zip(locked, whys, strict=True)], at_us
    )
    moved = 0
    for row, result in zip(locked, results, strict=True):
        # With a clock that was set back, `raised` must still not precede `seen`.
        values = {"raised": max(at_us, row.seen_us)} if raising else {"cleared": at_us}
        ((word, at),) = values.items()
        guard = {"cleared_us__isnull": True, "raised_us__isnull": raising}
        change: dict[str, Any] = {f"{word}_us": at, f"{word}_position": result.position}
        moved += StuckEpisode.objects.filter(id=row.id, **guard).update(**change)
        outbox.queue_delivery(
            row.project_id,
            entry=result.position,
            topic=TOPIC,
            deduplication_key=build_notification_key(
                row.session_id, row.subject, row.rule, row.epoch
            )
            if raising
            else f"recovered:{row.id.hex}",
            due_at_us=at_us,
        )
    return moved


def _end_reasons(rows: Sequence[StuckEpisode]) -> dict[UUID | None, str]:
    """Return how sessions ended, as the reason for clearing: a failed run made no progress."""
    sessions = Session.objects.filter(id__in={row.session_id for row in rows}, status__in=ENDED)
    return {
        session: f"session_{status}" for session, status in sessions.values_list("id", "status")
    }


PROGRESS: Final = "progress"  # reason for clearing an episode whose session continues


def build_notification_key(session: UUID | None, subject: UUID, rule: str, epoch: int) -> str:
    """Build the deduplication key of a notification.

    There is one per session, rule and epoch, however often the problem is raised. S10 has one per
    agent. S4 and S6 have one per effect or gate: a second unknown effect is news, and a session
    without a lease stays in epoch 0.
    """
    about = subject if session is None or rule in PER_SUBJECT_RULES else session
    return f"stuck:{about.hex}:{rule}:{epoch}"


def _draft(row: StuckEpisode, kind: str, at_us: int, why: str) -> Draft:
    facts: dict[str, Any] = {
        "rule": row.rule,
        "rules": RULES_VERSION,
        "epoch": row.epoch,
        "since_us": row.since_us,
    }
    facts |= {"why": why} if why else {}
    # The evidence may name a tool, so it is in the body, which can be erased.
    evidence = {"says": row.says} if kind == "session.stuck" and row.says else {}
    text = entries.dump_sorted_json({"kind": kind, "subject": row.subject, **facts, **evidence})
    return Draft(
        project=row.project_id,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest(kind, row.id.hex),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        text=text,
        facts=entries.dump_sorted_json(facts),
        session=row.session_id,
        subject=row.subject,
    )


def delete_unraised(rows: Collection[StuckEpisode], at_us: int) -> None:
    """Delete episodes that ended before they were raised; no notification was sent."""
    if rows:
        unraised = StuckEpisode.objects.filter(
            id__in=[row.id for row in rows], raised_us__isnull=True
        )
        unraised.filter(owner__isnull=True, snoozed_position__isnull=True).delete()
        # Rows with an owner or a snooze stay.
        unraised.filter(cleared_us__isnull=True).update(cleared_us=at_us)


def update_episode(
    row: StuckEpisode, *, says: Sentence | None = None, needs_person: bool | None = None
) -> None:
    """Store what an evaluation sees now and no deadline can reveal again."""
    change: dict[str, Any] = {} if says is None else {"says": sentence_to_json(says)}
    if needs_person is not None:
        change["needs_person"] = needs_person
    StuckEpisode.objects.filter(id=row.id).update(**change)


@transaction.atomic(savepoint=False)
def assign_owner(active_rule: ActiveRule, owner: User | None, reason: str, by: User) -> None:
    """Set the owner of an episode; None removes it."""
    row = _lock_episode(active_rule)
    StuckEpisode.objects.filter(id=row.id).update(owner=owner)
    facts = _action_facts(active_rule) | {
        "person": ensure_pseudonym(owner) if owner is not None else None
    }
    _record_action("stuck.assigned", active_rule, by, facts, reason)


@transaction.atomic(savepoint=False)
def snooze_episode(active_rule: ActiveRule, until_us: int | None, reason: str, by: User) -> None:
    """Snooze an episode until a moment; None ends the snooze."""
    row = _lock_episode(active_rule)
    position = _record_action(
        "stuck.snoozed",
        active_rule,
        by,
        _action_facts(active_rule) | {"until_us": until_us},
        reason,
    )
    by_whom = by if until_us is not None else None
    StuckEpisode.objects.filter(id=row.id).update(
        snoozed_until_us=until_us, snoozed_by=by_whom, snoozed_position=position
    )


def _lock_episode(active_rule: ActiveRule) -> StuckEpisode:
    """Lock the open episode; create it if no evaluation has stored it yet."""
    store_episodes([active_rule], 0, now_us())
    rule, subject, epoch = active_rule.key
    return StuckEpisode.objects.select_for_update().get(
        rule=rule, subject=subject, epoch=epoch, cleared_us__isnull=True
    )


def _record_action(
    kind: str, active_rule: ActiveRule, by: User, facts: dict[str, Any], words: str
) -> int:
    return record_admin_entry(
        active_rule.project,
        kind,
        actor=ensure_pseudonym(by),
        subject=active_rule.reason.subject,
        facts=facts,
        words={"reason": words, "id": new_uuid7().hex},
    )


def _action_facts(active_rule: ActiveRule) -> dict[str, Any]:
    return {"rule": active_rule.reason.rule, "epoch": active_rule.reason.epoch}


def sentence_to_json(says: Sentence) -> list[Any]:
    """Convert a sentence to JSON."""
    return [{"us": part.us} if isinstance(part, Moment) else part for part in says]


def sentence_from_json(says: Sequence[Any]) -> Sentence:
    """Convert JSON of `sentence_to_json` back to a sentence."""
    return [Moment(part["us"]) if isinstance(part, dict) else str(part) for part in says]
