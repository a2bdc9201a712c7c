"""The one writer of Exemption: a scoped, reasoned suspension of what would ask for leave, ended by time.

It never overrides a denial, nor lets pass what could not be evaluated: `covering` is asked with the rules that ask, and
in both cases there are none. Above low risk nobody exempts what they have a part in, as nobody approves it: else an
agent's owner would let it go by a grant where a yes of theirs does not count. The grant, every use, its revocation and
its end are in the journal.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from approvals import states
from approvals.matching import Wish
from approvals.models import Exemption
from approvals.predicates import globs
from journal import entries
from journal.clock import now_us
from journal.ids import uuid7
from journal.models import Body, Entry
from ledger.fold import RESOLVED
from sessions import projects
from sessions.models import Agent, Project, Session
from sessions.origin import Origin
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

LEAST_REASON: Final = 10
MOST_REASON: Final = 2000
SCOPES: Final = ("tool", "rule", "agent", "repository", "ref", "environment")  # globs; empty covers everything
_LONGEST: Final = {"tool": 100, "rule": 64, "agent": 64, "repository": 200, "ref": 200, "environment": 64}
_PAGE: Final = 500  # ends that one sweep tells


@transaction.atomic(savepoint=False)
def grant(
    project: Project,
    *,
    tool: str,
    reason: str,
    ends_at_us: int,
    user: User,
    session: Session | None = None,
    **scope: str,
) -> Exemption:
    """Suspend asking in `project` for what the globs cover, until `ends_at_us` (server's clock).

    `scope` may name rule, agent, repository, ref and environment. Raises RefusedError.
    """
    projects.expect_life(project)
    given = {"tool": tool, **scope}
    covered = {name: given.pop(name, "").strip() for name in SCOPES}
    if given:
        raise TypeError(f"an exemption has no {', '.join(given)}")
    if not covered["tool"]:
        raise RefusedError("Name the tool that is exempted; * covers every tool.")
    for name, glob in covered.items():
        if len(glob) > _LONGEST[name] or not glob.isprintable():
            raise RefusedError(f"The {name} is a glob of at most {_LONGEST[name]} printable characters.")
    words = reason.strip()
    if not LEAST_REASON <= len(words) <= MOST_REASON:
        raise RefusedError(f"Say why, in {LEAST_REASON} to {MOST_REASON} characters; others will look it up.")
    now = now_us()
    if not now < ends_at_us <= now + states.LONGEST_DECIDE_WITHIN_S * states.US:
        raise RefusedError("An exemption ends within thirty days, and not before it begins.")
    if session is not None and session.project_id != project.id:
        raise RefusedError("This project has no such session.")
    exemption = Exemption(
        id=uuid7(),
        project=project,
        session=session,
        granted_by=user,
        granted_at_us=now,
        ends_at_us=ends_at_us,
        **covered,
    )
    position = _record(
        exemption, "exemption.granted", user, now, {"ends_at_us": ends_at_us}, {**covered, "reason": words}
    )
    exemption.opened_position = position
    exemption.save(force_insert=True)
    return exemption


@transaction.atomic(savepoint=False)
def revoke(exemption: Exemption, user: User) -> bool:
    """End an exemption before its time; False when it had ended already."""
    now = now_us()
    live = Exemption.objects.filter(pk=exemption.pk, revoked_at_us__isnull=True, ends_at_us__gt=now)
    if not live.update(revoked_at_us=now):
        return False
    _record(exemption, "exemption.revoked", user, now, {}, {})
    return True


def reasons(granted: Iterable[Exemption]) -> dict[UUID, str]:
    """The reasons of exemptions, by id; an erased one is absent. One query."""
    at = {exemption.opened_position: exemption.id for exemption in granted}
    bodies = Body.objects.filter(entry_id__in=at).values_list("entry_id", "text")
    return {at[position]: str(orjson.loads(text)["reason"]) for position, text in bodies}


def covering(
    project: UUID,
    wish: Wish,
    asking: str | Sequence[str],
    session: UUID,
    agent: UUID,
    at_us: int | None = None,
    again: UUID | None = None,
) -> Exemption | None:
    """The exemption that suspends the asking of `agent`, or None: of several the one that ends first. One query.

    `asking` are the ids of all rules that ask (`Judgement.asking`): one that still asks is not suspended by the
    exemption from another. The empty id stands for what no rule speaks of. Above low risk whoever granted has no part
    in it. `again` is the effect where it was attempted before.
    """
    rules = [asking] if isinstance(asking, str) else list(asking)
    if not rules:
        return None
    live = _live(project, now_us() if at_us is None else at_us).exclude(_of_a_party(wish.risk, session, agent, again))
    for exemption in live.filter(Q(session__isnull=True) | Q(session=session)).order_by("ends_at_us", "id"):
        covered = {
            "tool": (wish.tool,),
            "rule": rules,
            "agent": (wish.agent,),
            "repository": (wish.repository,),
            "ref": (wish.ref,),
            "environment": (wish.environment,),
        }
        if all(_covers(getattr(exemption, name), values) for name, values in covered.items()):
            return exemption
    return None


def stands(exemption: UUID, at_us: int) -> bool:
    """True while nobody revoked it and its time is not over."""
    return Exemption.objects.filter(id=exemption, revoked_at_us__isnull=True, ends_at_us__gte=at_us).exists()


def is_of_a_party(exemption: UUID, risk: str, session: UUID, agent: UUID, again: UUID | None = None) -> bool:
    """True where whoever granted it may not let this pass: they have a part in it now, and its risk is above low."""
    return Exemption.objects.filter(_of_a_party(risk, session, agent, again), id=exemption).exists()


@transaction.atomic(savepoint=False)
def use(exemption: Exemption, origin: Origin, effect: UUID, session: UUID | None = None, attempts: int = 0) -> bool:
    """Count one use for `effect` and put it in the book; False when the exemption has ended meanwhile.

    `attempts` is how many the effect has had. The same command repeated is one use, but for another attempt it is
    another. Where it is False, what it was for must be asked for after all.
    """
    at = origin.received_us
    used_by = (effect.hex, str(attempts), origin.source, origin.key)
    event_id = entries.keyed_digest("exemption.used", exemption.id.hex, *used_by)
    if Entry.objects.filter(project=exemption.project_id, source=entries.SYSTEM_SOURCE, event_id=event_id).exists():
        return True
    if not _live(exemption.project_id, at).filter(pk=exemption.pk).update(uses=F("uses") + 1, used_at_us=at):
        return False
    entries.record(
        exemption.project_id,
        "exemption.used",
        event_id=event_id,
        text=_json({"kind": "exemption.used", "exemption": exemption.id.hex, "effect": effect.hex}),
        received_us=at,
        actor=origin.actor,
        session=session,
        effect=effect,
        subject=exemption.id,
    )
    return True


def sweep(at_us: int | None = None) -> int:
    """Put the end of every exemption that ran out in the book, once each; return how many were new.

    Nothing waits for it: an exemption that has ended covers nothing, swept or not.
    """
    now = now_us() if at_us is None else at_us
    untold = Exemption.objects.filter(revoked_at_us__isnull=True, expired_position__isnull=True, ends_at_us__lte=now)
    return sum(_tell_end(exemption) for exemption in untold.order_by("ends_at_us")[:_PAGE])


@transaction.atomic(savepoint=False)
def _tell_end(exemption: Exemption) -> bool:
    """Record an end; False when another sweeper was quicker."""
    facts = {"uses": exemption.uses, "ended_at_us": exemption.ends_at_us}
    appended = entries.record(
        exemption.project_id,
        "exemption.expired",
        event_id=entries.keyed_digest("exemption.expired", exemption.id.hex),
        text=_json({"kind": "exemption.expired", **facts}),
        received_us=now_us(),
        facts=_json(facts),
        session=exemption.session_id,
        subject=exemption.id,
    )
    untold = Exemption.objects.filter(pk=exemption.pk, expired_position__isnull=True)
    return bool(untold.update(expired_position=appended.position))


def _of_a_party(risk: str, session: UUID, agent: UUID, again: UUID | None) -> Q:
    """Whether the grantor has a part in it, as of now: it is asked on their behalf, or session or agent are theirs.

    It is asked on their word, too, where they said that an attempt before did not happen.
    """
    if risk == states.RISKS[0]:
        return Q(pk__in=())
    grantor = OuterRef("granted_by")
    theirs = Session.objects.filter(Q(on_behalf_of=grantor) | Q(owner=grantor), id=session)
    found: Q = Exists(theirs) | Exists(Agent.objects.filter(id=agent, owner=grantor))
    if again is not None:
        word = Entry.objects.filter(effect=again, kind=RESOLVED, lane="system")
        found |= Q(Exists(word.filter(actor=OuterRef("granted_by__person__pseudonym"))))
    return found


def _live(project: UUID, at_us: int) -> "QuerySet[Exemption]":
    return Exemption.objects.filter(project=project, revoked_at_us__isnull=True, ends_at_us__gt=at_us)


def _covers(glob: str, values: Sequence[str]) -> bool:
    if not glob:
        return True
    covers = globs([glob])
    return all(covers(value) for value in values)


def _record(
    exemption: Exemption, kind: str, user: User, at_us: int, facts: dict[str, Any], words: dict[str, Any]
) -> int:
    appended = entries.record(
        exemption.project_id,
        kind,
        event_id=uuid7().hex,
        text=_json({"kind": kind, **facts, **words}),
        received_us=at_us,
        actor=pseudonym_of(user),
        facts=_json(facts),
        session=exemption.session_id,
        subject=exemption.id,
    )
    return appended.position


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
