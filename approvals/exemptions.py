"""The one writer of Exemption and ExemptionVote: scoped suspensions of approval.

An exemption never overrides a denial and never allows what could not be evaluated: `find_exemption`
takes the rules that ask, and both cases have none. It needs as many people as the strictest rule
that it suspends, each with code and password. It covers irreversible effects only where every rule
allows that, and counts while its grantors may grant one. Above low risk, people cannot exempt
effects that they have an interest in, as they cannot approve them. The request, every grant, every
use, the revocation and the end are in the journal.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.db.models.lookups import GreaterThanOrEqual

from accounts import projects
from accounts.models import Agent, Membership, Project
from accounts.people import ensure_pseudonym, find_recent_password_giver, require_own_password
from approvals.gates import statuses
from approvals.models import Activation, Exemption, ExemptionVote
from approvals.policies.engine import ExemptionRequirement, PolicyInput, compile_ref_check
from approvals.voting.quorum import GRANTING_ROLES
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.errors import ChangeRefused
from db.ids import new_uuid7
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import Origin
from journal.models import Body, Entry
from ledger.fold.effect_state import RESOLVED
from ledger.tools.predicates import compile_globs
from sessions import sessions
from sessions.models import Session

MIN_EXEMPTION_REASON: Final = 10
MAX_EXEMPTION_REASON: Final = 2000
EXEMPTION_SCOPES: Final = ("tool", "rule", "agent", "repository", "ref", "environment")  # globs
_LONGEST: Final = {
    "tool": 100,
    "rule": 64,
    "agent": 64,
    "repository": 200,
    "ref": 200,
    "environment": 64,
}
_WILDCARDS: Final = re.compile(r"[*?\[]")
_SWEEP_BATCH: Final = 500  # expiries recorded by one sweep


def validate_exemption(
    project: Project,
    *,
    tool: str,
    reason: str,
    ends_at_us: int,
    session: Session | None = None,
    **scope: str,
) -> tuple[dict[str, str], str]:
    """Return the validated globs by scope, and the reason. Raises ChangeRefused."""
    projects.require_active_project(project)
    remaining = {"tool": tool, **scope}
    globs_by_scope = {name: remaining.pop(name, "").strip() for name in EXEMPTION_SCOPES}
    if remaining:
        raise TypeError(f"an exemption has no {', '.join(remaining)}")
    if not globs_by_scope["tool"]:
        raise ChangeRefused("Name the tool to exempt, or * for every tool.")
    for name, glob in globs_by_scope.items():
        if len(glob) > _LONGEST[name] or not glob.isprintable():
            raise ChangeRefused(
                f"Enter a {name} glob of at most {_LONGEST[name]} printable characters."
            )
    stripped_reason = reason.strip()
    if not MIN_EXEMPTION_REASON <= len(stripped_reason) <= MAX_EXEMPTION_REASON:
        raise ChangeRefused(
            f"Give a reason of {MIN_EXEMPTION_REASON} to {MAX_EXEMPTION_REASON} characters."
        )
    now = now_us()
    if not now < ends_at_us <= now + statuses.MAX_DECIDE_WITHIN_S * statuses.US:
        raise ChangeRefused("Choose an end in the future and within 30 days.")
    if session is not None and session.project_id != project.id:
        raise ChangeRefused("The project has no such session. Choose one of its sessions.")
    return globs_by_scope, stripped_reason


@transaction.atomic(savepoint=False)
def create_exemption(
    project: Project,
    *,
    ends_at_us: int,
    user: User,
    session: Session | None = None,
    step_up: str = "none",
    password_at_us: int | None = None,
    password_for: str = "",
    **scope_and_reason: str,
) -> Exemption:
    """Suspend approval in `project` for what the globs cover, until `ends_at_us`.

    `ends_at_us` is by the server's clock. `scope_and_reason` has the tool and the reason, and may
    name rule, agent, repository, ref and environment. `step_up` is what the person just proved, and
    `password_at_us` when they gave their password, for this grant or an earlier answer
    (`password_for`). If a rule that it could suspend needs several
    people, the exemption is only requested until others `confirm_exemption_grant` it. Raises
    ChangeRefused.
    """
    globs_by_scope, stripped_reason = validate_exemption(
        project, ends_at_us=ends_at_us, session=session, **scope_and_reason
    )
    now = now_us()
    _require_granting_role(project.id, user)
    password_at_us = _require_fresh_proof(step_up, password_at_us, now)
    minimum = count_needed_grantors(project, globs_by_scope["tool"], globs_by_scope["rule"])
    exemption = Exemption(
        id=new_uuid7(),
        project=project,
        session=session,
        granted_by=user,
        granted_at_us=now,
        minimum=minimum,
        ends_at_us=ends_at_us,
        **globs_by_scope,
    )
    kind = "exemption.granted"
    facts: dict[str, Any] = {
        "ends_at_us": ends_at_us,
        "scope": digest_scope(globs_by_scope),
        "password_at_us": password_at_us,
        **_password_facts(password_for),
    }
    if minimum > 1:
        kind, facts = "exemption.requested", {**facts, "minimum": minimum}
    exemption.opened_position = _record_exemption_entry(
        exemption, kind, user, now, facts, {**globs_by_scope, "reason": stripped_reason}
    )
    exemption.save(force_insert=True)
    _create_vote(exemption, user, password_at_us, now, exemption.opened_position)
    if minimum == 1:
        _put_in_force(exemption, now)
    return exemption


def digest_scope(globs_by_scope: Mapping[str, str]) -> str:
    """Return the journal's keyed digest of an exemption's globs."""
    return entries.keyed_digest("scope", *(globs_by_scope[name] for name in EXEMPTION_SCOPES))


def restore_exemptions(changes: Sequence[RowChange]) -> None:
    """Restore exemptions to what the journal gives (manage.py rebuild)."""
    write_row_changes(Exemption, changes)


def restore_exemption_votes(changes: Sequence[RowChange]) -> None:
    """Restore grants of exemptions to what the journal gives (manage.py rebuild)."""
    write_row_changes(ExemptionVote, changes)


def compute_exemption_code(*parts: object) -> str:
    """Return the four characters that a person types to confirm the exemption."""
    text = orjson.dumps(["exemption", *map(str, parts)])
    return hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()[:4]


@transaction.atomic(savepoint=False)
def confirm_exemption_grant(
    exemption: Exemption,
    user: User,
    *,
    step_up: str = "none",
    password_at_us: int | None = None,
    password_for: str = "",
) -> bool:
    """Grant another person's request; True if now in force. Raises ChangeRefused."""
    projects.require_active_project(exemption.project)
    locked = Exemption.objects.select_for_update().get(pk=exemption.pk)
    now = now_us()
    _require_granting_role(locked.project_id, user)
    if (
        locked.in_force_at_us is not None
        or locked.revoked_at_us is not None
        or locked.ends_at_us <= now
    ):
        raise ChangeRefused(
            "This exemption needs no more grants: it is in force or has ended. See its page."
        )
    if ExemptionVote.objects.filter(exemption=locked, user=user).exists():
        raise ChangeRefused(
            "You have already granted this exemption. Another person must confirm it."
        )
    password_at_us = _require_fresh_proof(step_up, password_at_us, now)
    valid_votes = ExemptionVote.objects.filter(_can_grant(), exemption=locked).count() + 1
    is_complete = valid_votes >= locked.minimum
    kind = "exemption.granted" if is_complete else "exemption.confirmed"
    facts = {
        "ends_at_us": locked.ends_at_us,
        "people": valid_votes,
        "password_at_us": password_at_us,
        **_password_facts(password_for),
    }
    _create_vote(
        locked,
        user,
        password_at_us,
        now,
        _record_exemption_entry(locked, kind, user, now, facts, {}),
    )
    if is_complete:
        _put_in_force(locked, now)
    return is_complete


def count_needed_grantors(project: Project, tool: str, rule: str) -> int:
    """Return how many people must grant an exemption for these globs.

    As many as the strictest rule needs that the exemption could suspend.
    """
    current = (
        Activation.objects.select_related("policy_set")
        .filter(project=project, is_current=True)
        .first()
    )
    rules = current.policy_set.rules["rules"] if current is not None else []
    matches_rule = compile_globs([rule]) if rule else None
    minimums = [
        rule_entry["require"]["minimum"]
        for rule_entry in rules
        if (rule_entry["outcome"] == "require" or "same_call_unknown" in rule_entry)
        and (matches_rule is None or matches_rule(rule_entry["id"]))
        and (
            "tools" not in rule_entry["match"]
            or any(_globs_may_overlap(tool, glob) for glob in rule_entry["match"]["tools"])
        )
    ]
    return max(minimums, default=1)


def _globs_may_overlap(first: str, second: str) -> bool:
    """False if no text matches both globs; wildcards compare by prefix only."""
    for plain, glob in ((first, second), (second, first)):
        if not _WILDCARDS.search(plain):
            return compile_globs([glob])(plain)
    prefixes = [_WILDCARDS.split(glob, maxsplit=1)[0] for glob in (first, second)]
    return prefixes[0].startswith(prefixes[1]) or prefixes[1].startswith(prefixes[0])


def _require_granting_role(project: UUID, user: User) -> None:
    memberships = Membership.objects.filter(
        project=project, user=user, user__is_active=True, role__in=GRANTING_ROLES
    )
    if not memberships.exists():
        raise ChangeRefused(
            "Only operators and admins of this project can grant exemptions. Ask one of them."
        )
    require_own_password(user)


def _require_fresh_proof(step_up: str, password_at_us: int | None, now: int) -> int:
    is_fresh = (
        password_at_us is not None
        and 0 <= now - password_at_us <= statuses.PASSWORD_VALID_S * statuses.US
    )
    if step_up != statuses.STEP_UPS[-1] or password_at_us is None or not is_fresh:
        raise ChangeRefused("Enter the code and your password. A password counts for 5 minutes.")
    return password_at_us


def _password_facts(password_for: str) -> dict[str, str]:
    return {"password_for": password_for} if password_for else {}


def _create_vote(
    exemption: Exemption, user: User, password_at_us: int, now: int, position: int
) -> None:
    ExemptionVote.objects.create(
        exemption=exemption,
        user=user,
        actor=ensure_pseudonym(user),
        step_up=statuses.STEP_UPS[-1],
        password_at_us=password_at_us,
        position=position,
        voted_at_us=now,
    )


def _put_in_force(exemption: Exemption, now: int) -> None:
    exemption.in_force_at_us = now
    exemption.save(update_fields=["in_force_at_us"])


@transaction.atomic(savepoint=False)
def end_exemption(exemption: Exemption, user: User) -> bool:
    """End an exemption early; False if it had already ended."""
    now = now_us()
    unrevoked = Exemption.objects.filter(
        pk=exemption.pk, revoked_at_us__isnull=True, ends_at_us__gt=now
    )
    if unrevoked.select_for_update().first() is None:
        return False
    _record_exemption_entry(exemption, "exemption.revoked", user, now, {}, {})
    unrevoked.update(revoked_at_us=now)
    return True


def load_exemption_reasons(granted: Iterable[Exemption]) -> dict[UUID, str]:
    """Return the reasons of exemptions by id, without erased ones. One query."""
    at = {exemption.opened_position: exemption.id for exemption in granted}
    bodies = Body.objects.filter(entry_id__in=at).values_list("entry_id", "text")
    return {at[position]: str(orjson.loads(text)["reason"]) for position, text in bodies}


def find_exemption(
    project: UUID,
    policy_input: PolicyInput,
    asking_rules: str | Sequence[str],
    session: UUID,
    agent: UUID,
    at_us: int | None = None,
    retried_effect: UUID | None = None,
    suspension: ExemptionRequirement = ExemptionRequirement(),  # noqa: B008  # immutable
    only: UUID | None = None,
) -> Exemption | None:
    """Return the exemption that suspends approval for `agent`, or None. One query if none is live.

    Of several, the one that ends first. `asking_rules` are the ids of all rules that ask
    (`PolicyDecision.asking`); the exemption must cover each. An empty id means unmatched effects.
    `suspension` is what the rules demand of an exemption: how many grantors who may grant one now
    and, above low risk, have no interest in the effect. `retried_effect` is the effect if it was
    attempted before; `only` is the one exemption to consider.
    """
    rules = [asking_rules] if isinstance(asking_rules, str) else list(asking_rules)
    if not rules or not suspension.allowed:
        return None
    at = now_us() if at_us is None else at_us
    # Most plans meet none: counting the votes takes longer than the rest of the plan's policy.
    if not _UNEXPIRED.rows(project=project, at=at):
        return None
    disinterested = _valid_votes().exclude(
        _has_interest(policy_input.risk, session, agent, retried_effect)
    )
    candidates = _live_exemptions(project, at).annotate(disinterested=_count_votes(disinterested))
    candidates = candidates.filter(
        Q(session__isnull=True) | Q(session=session), disinterested__gte=suspension.minimum
    )
    for exemption in (candidates if only is None else candidates.filter(id=only)).order_by(
        "ends_at_us", "id"
    ):
        values_by_scope = {
            "tool": (policy_input.tool,),
            "rule": rules,
            "agent": (policy_input.agent,),
            "repository": (policy_input.repository,),
            "environment": (policy_input.environment,),
        }
        glob = exemption.ref
        if glob and not compile_ref_check([glob], all_refs=True)(policy_input):
            continue
        if all(
            _covers_all(getattr(exemption, name), values)
            for name, values in values_by_scope.items()
        ):
            return exemption
    return None


def count_live_exemptions(project: UUID, at_us: int) -> int:
    """Return how many exemptions are in force. One query."""
    return _live_exemptions(project, at_us).count()


def is_exemption_valid(exemption: UUID, at_us: int) -> bool:
    """True while the exemption is in force, not revoked or expired, validly granted."""
    return (
        _granted_exemptions()
        .filter(id=exemption, revoked_at_us__isnull=True, ends_at_us__gte=at_us)
        .exists()
    )


class Grantor(NamedTuple):
    """A person who granted an exemption.

    `may` is whether they may grant one now; `giver` is who set their password in the days before.
    `password_for` tells whether they typed the password for this grant; empty if not recorded.
    """

    name: str
    voted_at_us: int
    password_at_us: int
    position: int
    may: bool
    giver: str
    password_for: str = ""


def load_grantors(exemption: Exemption, until_position: int | None = None) -> list[Grantor]:
    """Return those who granted it up to a journal position (None: now), in order."""
    votes = ExemptionVote.objects.filter(exemption=exemption).annotate(may=Q(_can_grant()))
    rows: list[Any] = list(votes.select_related("user__person").order_by("position"))
    recorded = Entry.objects.filter(position__in=[vote.position for vote in rows])
    facts = {
        position: orjson.loads(text) for position, text in recorded.values_list("position", "facts")
    }
    return [
        Grantor(
            vote.user.get_username(),
            vote.voted_at_us,
            vote.password_at_us,
            vote.position,
            vote.may,
            find_recent_password_giver(vote.user, vote.voted_at_us),
            facts.get(vote.position, {}).get("password_for", ""),
        )
        for vote in rows
        if until_position is None or vote.position <= until_position
    ]


def annotate_valid_grantors(rows: "QuerySet[Exemption]") -> "QuerySet[Exemption]":
    """Annotate exemptions with `present`: how many grantors may grant one now."""
    return rows.annotate(present=_count_votes(_valid_votes()))


def _granted_exemptions() -> "QuerySet[Exemption]":
    return Exemption.objects.filter(IS_GRANTED, in_force_at_us__isnull=False)


def _can_grant() -> Exists:
    """True if the voter is an active operator or admin of the exemption's project."""
    members = Membership.objects.filter(
        project=OuterRef("exemption__project"), user=OuterRef("user")
    )
    return Exists(members.filter(user__is_active=True, role__in=GRANTING_ROLES))


def _count_votes(votes: "QuerySet[ExemptionVote]") -> Coalesce:
    counts = votes.order_by().values("exemption").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counts), 0)


def _valid_votes() -> "QuerySet[ExemptionVote]":
    return ExemptionVote.objects.filter(_can_grant(), exemption=OuterRef("pk"))


# Condition on exemptions: enough of the grantors may grant one now.
IS_GRANTED: Final = Q(GreaterThanOrEqual(_count_votes(_valid_votes()), F("minimum")))


@transaction.atomic(savepoint=False)
def use_exemption(
    exemption: Exemption,
    origin: Origin,
    effect: UUID,
    session: UUID | None = None,
    attempts: int = 0,
) -> bool:
    """Count and record one use for `effect`; False if the exemption has ended.

    `attempts` is how many the effect has had. A repeated command is the same use, another attempt
    is another. If False, the effect needs approval after all.
    """
    at = origin.received_us
    used_by = (effect.hex, str(attempts), origin.source, origin.key)
    event_id = entries.keyed_digest("exemption.used", exemption.id.hex, *used_by)
    if Entry.objects.filter(
        project=exemption.project_id, source=entries.SYSTEM_SOURCE, event_id=event_id
    ).exists():
        return True
    if (
        not _live_exemptions(exemption.project_id, at)
        .filter(pk=exemption.pk)
        .update(uses=F("uses") + 1, used_at_us=at)
    ):
        return False
    entries.record_system_entry(
        exemption.project_id,
        "exemption.used",
        event_id=event_id,
        text=entries.dump_sorted_json(
            {"kind": "exemption.used", "exemption": exemption.id.hex, "effect": effect.hex}
        ),
        received_us=at,
        actor=origin.actor,
        session=session,
        effect=effect,
        subject=exemption.id,
    )
    return True


def expire_exemptions(at_us: int | None = None) -> int:
    """Record the end of every exemption that expired, once each; return how many.

    An exemption that has ended covers nothing, recorded or not.
    """
    now = now_us() if at_us is None else at_us
    unrecorded = Exemption.objects.filter(
        revoked_at_us__isnull=True, expired_position__isnull=True, ends_at_us__lte=now
    )
    return sum(
        _record_expiry(exemption) for exemption in unrecorded.order_by("ends_at_us")[:_SWEEP_BATCH]
    )


@transaction.atomic(savepoint=False)
def _record_expiry(exemption: Exemption) -> bool:
    """Record an end; False if another process did so first."""
    facts = {"uses": exemption.uses, "ended_at_us": exemption.ends_at_us}
    entry = entries.record_system_entry(
        exemption.project_id,
        "exemption.expired",
        event_id=entries.keyed_digest("exemption.expired", exemption.id.hex),
        text=entries.dump_sorted_json({"kind": "exemption.expired", **facts}),
        received_us=now_us(),
        facts=entries.dump_sorted_json(facts),
        session=exemption.session_id,
        subject=exemption.id,
    )
    unrecorded = Exemption.objects.filter(pk=exemption.pk, expired_position__isnull=True)
    return bool(unrecorded.update(expired_position=entry.position))


def _has_interest(risk: str, session: UUID, agent: UUID, retried_effect: UUID | None) -> Q:
    """Return the condition that the voter has an interest in the effect, as of now.

    The effect is requested on their behalf, or session or agent are theirs, or they stated that an
    earlier attempt did not happen.
    """
    if risk == statuses.RISKS[0]:
        return Q(pk__in=())
    voter = OuterRef("user")
    own_sessions = Session.objects.filter(Q(on_behalf_of=voter) | Q(owner=voter), id=session)
    # A reported session may work on behalf of the person that its parent names.
    requester = sessions.find_requester(session)
    condition: Q = Exists(own_sessions) | Exists(Agent.objects.filter(id=agent, owner=voter))
    if requester is not None:
        condition |= Q(user__username=requester)
    if retried_effect is not None:
        resolution_entries = Entry.objects.filter(
            effect=retried_effect, kind=RESOLVED, lane="system"
        )
        condition |= Q(Exists(resolution_entries.filter(actor=OuterRef("actor"))))
    return condition


def _live_exemptions(project: UUID, at_us: int) -> "QuerySet[Exemption]":
    return _granted_exemptions().filter(
        project=project, revoked_at_us__isnull=True, ends_at_us__gt=at_us
    )


def _select_unexpired(project: UUID, at: int) -> "QuerySet[Exemption, Any]":
    """Select one exemption that is not over; whether it is granted is not compared."""
    rows = Exemption.objects.filter(project=project, revoked_at_us__isnull=True, ends_at_us__gt=at)
    return rows.values_list("id", flat=True)[:1]


_UNEXPIRED: Final = CompiledQuerySet(_select_unexpired, project=UUID, at=int)


def _covers_all(glob: str, values: Sequence[str]) -> bool:
    if not glob:
        return True
    covers = compile_globs([glob])
    return all(covers(value) for value in values)


def _record_exemption_entry(
    exemption: Exemption,
    kind: str,
    user: User,
    at_us: int,
    facts: dict[str, Any],
    body_fields: dict[str, Any],
) -> int:
    entry = entries.record_system_entry(
        exemption.project_id,
        kind,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": kind, **facts, **body_fields}),
        received_us=at_us,
        actor=ensure_pseudonym(user),
        facts=entries.dump_sorted_json(facts),
        session=exemption.session_id,
        subject=exemption.id,
    )
    return entry.position
