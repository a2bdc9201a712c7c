"""The one writer of Exemption and ExemptionVote: a scoped, reasoned suspension of what would ask for leave.

It never overrides a denial, nor lets pass what could not be evaluated: `covering` is asked with the rules that ask, and
in both cases there are none. It asks for no less than the rules that it suspends: as many people as the strictest
wants, each with code and password. It lets pass what is irreversible only where every rule says so, and counts as long
as its grantors may grant one. Above low risk nobody exempts what they have a part in, as nobody approves it. The
request, every grant, every use, its revocation and its end are in the journal.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.db.models.lookups import GreaterThanOrEqual

from approvals import states
from approvals.matching import Suspension, Wish, covers_refs
from approvals.models import Activation, Exemption, ExemptionVote
from approvals.predicates import globs
from approvals.quorum import GRANTING
from journal import entries
from journal.clock import now_us
from journal.ids import uuid7
from journal.models import Body, Entry
from ledger.fold import RESOLVED
from sessions import openings, projects
from sessions.models import Agent, Membership, Project, Session
from sessions.origin import Origin
from sessions.people import expect_own_password, giver_before, pseudonym_of
from sessions.refused import RefusedError

LEAST_REASON: Final = 10
MOST_REASON: Final = 2000
SCOPES: Final = (
    "tool",
    "rule",
    "agent",
    "repository",
    "ref",
    "environment",
)  # globs; empty covers everything
_LONGEST: Final = {
    "tool": 100,
    "rule": 64,
    "agent": 64,
    "repository": 200,
    "ref": 200,
    "environment": 64,
}
_SIGNS: Final = re.compile(r"[*?\[]")
_PAGE: Final = 500  # ends that one sweep tells


def checked(
    project: Project,
    *,
    tool: str,
    reason: str,
    ends_at_us: int,
    session: Session | None = None,
    **scope: str,
) -> tuple[dict[str, str], str]:
    """What an exemption would cover, by the names of SCOPES, and its reason. Raises RefusedError."""
    projects.expect_life(project)
    given = {"tool": tool, **scope}
    covered = {name: given.pop(name, "").strip() for name in SCOPES}
    if given:
        raise TypeError(f"an exemption has no {', '.join(given)}")
    if not covered["tool"]:
        raise RefusedError("Name the tool that is exempted; * covers every tool.")
    for name, glob in covered.items():
        if len(glob) > _LONGEST[name] or not glob.isprintable():
            raise RefusedError(
                f"The {name} is a glob of at most {_LONGEST[name]} printable characters."
            )
    words = reason.strip()
    if not LEAST_REASON <= len(words) <= MOST_REASON:
        raise RefusedError(
            f"Say why, in {LEAST_REASON} to {MOST_REASON} characters; others will look it up."
        )
    now = now_us()
    if not now < ends_at_us <= now + states.LONGEST_DECIDE_WITHIN_S * states.US:
        raise RefusedError("An exemption ends within thirty days, and not before it begins.")
    if session is not None and session.project_id != project.id:
        raise RefusedError("This project has no such session.")
    return covered, words


@transaction.atomic(savepoint=False)
def grant(
    project: Project,
    *,
    ends_at_us: int,
    user: User,
    session: Session | None = None,
    step_up: str = "none",
    password_at_us: int | None = None,
    **asked: str,
) -> Exemption:
    """Suspend asking in `project` for what the globs cover, until `ends_at_us` (server's clock).

    `asked` has the tool and the reason, and may name rule, agent, repository, ref and environment. `step_up` is what
    the person just proved, and `password_at_us` when they gave their password. Where a rule that it could suspend asks
    more than one person, it is only requested, until others `confirm` it. Raises RefusedError.
    """
    covered, words = checked(project, ends_at_us=ends_at_us, session=session, **asked)
    now = now_us()
    _expect_right(project.id, user)
    password_at_us = _expect_proof(step_up, password_at_us, now)
    minimum = needed_people(project, covered["tool"], covered["rule"])
    exemption = Exemption(
        id=uuid7(),
        project=project,
        session=session,
        granted_by=user,
        granted_at_us=now,
        minimum=minimum,
        ends_at_us=ends_at_us,
        **covered,
    )
    kind, facts = "exemption.granted", {"ends_at_us": ends_at_us}
    if minimum > 1:
        kind, facts = "exemption.requested", {**facts, "minimum": minimum}
    exemption.opened_position = _record(
        exemption, kind, user, now, facts, {**covered, "reason": words}
    )
    exemption.save(force_insert=True)
    _vote(exemption, user, password_at_us, now, exemption.opened_position)
    if minimum == 1:
        _begin(exemption, now)
    return exemption


def code(*what: object) -> str:
    """The four characters that a person types to say which exemption they mean."""
    text = orjson.dumps(["exemption", *map(str, what)])
    return hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()[:4]


@transaction.atomic(savepoint=False)
def confirm(
    exemption: Exemption, user: User, *, step_up: str = "none", password_at_us: int | None = None
) -> bool:
    """Grant what another person requested; True when it counts from now on. Raises RefusedError."""
    projects.expect_life(exemption.project)
    locked = Exemption.objects.select_for_update().get(pk=exemption.pk)
    now = now_us()
    _expect_right(locked.project_id, user)
    if (
        locked.in_force_at_us is not None
        or locked.revoked_at_us is not None
        or locked.ends_at_us <= now
    ):
        raise RefusedError(
            "This exemption waits for nobody: it is in force or has ended. Look at its page."
        )
    if ExemptionVote.objects.filter(exemption=locked, user=user).exists():
        raise RefusedError(
            "You have granted this exemption already. Somebody else must confirm it."
        )
    password_at_us = _expect_proof(step_up, password_at_us, now)
    present = ExemptionVote.objects.filter(_may_grant(), exemption=locked).count() + 1
    begins = present >= locked.minimum
    kind = "exemption.granted" if begins else "exemption.confirmed"
    facts = {"ends_at_us": locked.ends_at_us, "people": present}
    _vote(locked, user, password_at_us, now, _record(locked, kind, user, now, facts, {}))
    if begins:
        _begin(locked, now)
    return begins


def needed_people(project: Project, tool: str, rule: str) -> int:
    """How many people grant an exemption for these globs: as many as the strictest rule asks that it could suspend."""
    current = (
        Activation.objects.select_related("policy_set")
        .filter(project=project, is_current=True)
        .first()
    )
    rules = current.policy_set.rules["rules"] if current is not None else []
    covers = globs([rule]) if rule else None
    asked = [
        one["require"]["minimum"]
        for one in rules
        if (one["outcome"] == "require" or "same_call_unknown" in one)
        and (covers is None or covers(one["id"]))
        and (
            "tools" not in one["match"]
            or any(_may_meet(tool, glob) for glob in one["match"]["tools"])
        )
    ]
    return max(asked, default=1)


def _may_meet(one: str, other: str) -> bool:
    """False where no text is covered by both globs; of two that have signs only their beginnings are compared."""
    for plain, glob in ((one, other), (other, one)):
        if not _SIGNS.search(plain):
            return globs([glob])(plain)
    begun = [_SIGNS.split(glob, maxsplit=1)[0] for glob in (one, other)]
    return begun[0].startswith(begun[1]) or begun[1].startswith(begun[0])


def _expect_right(project: UUID, user: User) -> None:
    found = Membership.objects.filter(
        project=project, user=user, user__is_active=True, role__in=GRANTING
    )
    if not found.exists():
        raise RefusedError(
            "Only operators and administrators of this project grant exemptions. Ask one of them."
        )
    expect_own_password(user)


def _expect_proof(step_up: str, password_at_us: int | None, now: int) -> int:
    fresh = (
        password_at_us is not None
        and 0 <= now - password_at_us <= states.PASSWORD_COUNTS_S * states.US
    )
    if step_up != states.STEP_UPS[-1] or password_at_us is None or not fresh:
        raise RefusedError(
            "An exemption takes its code and your password of the last five minutes. Give both."
        )
    return password_at_us


def _vote(exemption: Exemption, user: User, password_at_us: int, now: int, position: int) -> None:
    ExemptionVote.objects.create(
        exemption=exemption,
        user=user,
        actor=pseudonym_of(user),
        step_up=states.STEP_UPS[-1],
        password_at_us=password_at_us,
        position=position,
        voted_at_us=now,
    )


def _begin(exemption: Exemption, now: int) -> None:
    exemption.in_force_at_us = now
    exemption.save(update_fields=["in_force_at_us"])


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
    suspension: Suspension = Suspension(),  # noqa: B008  # immutable
    only: UUID | None = None,
) -> Exemption | None:
    """The exemption that suspends the asking of `agent`, or None: of several the one that ends first. Two queries.

    `asking` are the ids of all rules that ask (`Judgement.asking`): one that still asks is not suspended by the
    exemption from another. The empty id stands for what no rule speaks of. `suspension` is what they ask of an
    exemption: so many grantors who may grant one now and, above low risk, have no part in it. `again` is the effect
    where it was attempted before; `only` the one exemption that may be found.
    """
    rules = [asking] if isinstance(asking, str) else list(asking)
    if not rules or not suspension.allowed:
        return None
    apart = _present().exclude(_of_a_party(wish.risk, session, agent, again))
    live = _live(project, now_us() if at_us is None else at_us).annotate(apart=_counted(apart))
    live = live.filter(Q(session__isnull=True) | Q(session=session), apart__gte=suspension.minimum)
    for exemption in (live if only is None else live.filter(id=only)).order_by("ends_at_us", "id"):
        covered = {
            "tool": (wish.tool,),
            "rule": rules,
            "agent": (wish.agent,),
            "repository": (wish.repository,),
            "environment": (wish.environment,),
        }
        glob = exemption.ref
        if glob and not covers_refs([glob], surely=True)(wish):
            continue
        if all(_covers(getattr(exemption, name), values) for name, values in covered.items()):
            return exemption
    return None


def stands(exemption: UUID, at_us: int) -> bool:
    """True while it is in force, nobody revoked it, its time is not over, and its grantors may grant one."""
    return (
        _granted().filter(id=exemption, revoked_at_us__isnull=True, ends_at_us__gte=at_us).exists()
    )


class Grantor(NamedTuple):
    """Who granted an exemption, how, whether they may grant one now, and who set their password in the days before."""

    name: str
    voted_at_us: int
    password_at_us: int
    position: int
    may: bool
    giver: str


def grantors(exemption: Exemption, upto: int | None = None) -> list[Grantor]:
    """Those who granted it by the position `upto` (None: by now), in the order in which they did."""
    votes = ExemptionVote.objects.filter(exemption=exemption).annotate(may=Q(_may_grant()))
    rows: list[Any] = list(votes.select_related("user__person").order_by("position"))
    return [
        Grantor(
            one.user.get_username(),
            one.voted_at_us,
            one.password_at_us,
            one.position,
            one.may,
            giver_before(one.user, one.voted_at_us),
        )
        for one in rows
        if upto is None or one.position <= upto
    ]


def with_grantors(rows: "QuerySet[Exemption]") -> "QuerySet[Exemption]":
    """Exemptions that also say as `present` how many of their grantors may grant one now."""
    return rows.annotate(present=_counted(_present()))


def _granted() -> "QuerySet[Exemption]":
    return Exemption.objects.filter(IS_GRANTED, in_force_at_us__isnull=False)


def _may_grant() -> Exists:
    """Whether the voter is an active operator or administrator of the exemption's project."""
    members = Membership.objects.filter(
        project=OuterRef("exemption__project"), user=OuterRef("user")
    )
    return Exists(members.filter(user__is_active=True, role__in=GRANTING))


def _counted(votes: "QuerySet[ExemptionVote]") -> Coalesce:
    counted = votes.order_by().values("exemption").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counted), 0)


def _present() -> "QuerySet[ExemptionVote]":
    return ExemptionVote.objects.filter(_may_grant(), exemption=OuterRef("pk"))


# Enough of its grantors may grant one now; for a query of exemptions.
IS_GRANTED: Final = Q(GreaterThanOrEqual(_counted(_present()), F("minimum")))


@transaction.atomic(savepoint=False)
def use(
    exemption: Exemption,
    origin: Origin,
    effect: UUID,
    session: UUID | None = None,
    attempts: int = 0,
) -> bool:
    """Count one use for `effect` and put it in the book; False when the exemption has ended meanwhile.

    `attempts` is how many the effect has had. The same command repeated is one use, but for another attempt it is
    another. Where it is False, what it was for must be asked for after all.
    """
    at = origin.received_us
    used_by = (effect.hex, str(attempts), origin.source, origin.key)
    event_id = entries.keyed_digest("exemption.used", exemption.id.hex, *used_by)
    if Entry.objects.filter(
        project=exemption.project_id, source=entries.SYSTEM_SOURCE, event_id=event_id
    ).exists():
        return True
    if (
        not _live(exemption.project_id, at)
        .filter(pk=exemption.pk)
        .update(uses=F("uses") + 1, used_at_us=at)
    ):
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
    untold = Exemption.objects.filter(
        revoked_at_us__isnull=True, expired_position__isnull=True, ends_at_us__lte=now
    )
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
    """Whether the voter has a part in it, as of now: it is asked on their behalf, or session or agent are theirs.

    It is asked on their word, too, where they said that an attempt before did not happen.
    """
    if risk == states.RISKS[0]:
        return Q(pk__in=())
    voter = OuterRef("user")
    theirs = Session.objects.filter(Q(on_behalf_of=voter) | Q(owner=voter), id=session)
    requester = openings.requester(
        session
    )  # a reported session may work for whom the one above it names
    found: Q = Exists(theirs) | Exists(Agent.objects.filter(id=agent, owner=voter))
    if requester is not None:
        found |= Q(user__username=requester)
    if again is not None:
        word = Entry.objects.filter(effect=again, kind=RESOLVED, lane="system")
        found |= Q(Exists(word.filter(actor=OuterRef("actor"))))
    return found


def _live(project: UUID, at_us: int) -> "QuerySet[Exemption]":
    return _granted().filter(project=project, revoked_at_us__isnull=True, ends_at_us__gt=at_us)


def _covers(glob: str, values: Sequence[str]) -> bool:
    if not glob:
        return True
    covers = globs([glob])
    return all(covers(value) for value in values)


def _record(
    exemption: Exemption,
    kind: str,
    user: User,
    at_us: int,
    facts: dict[str, Any],
    words: dict[str, Any],
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
