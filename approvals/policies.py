"""The one writer of PolicySet and Activation: loads rules, puts them in force, and tells what is in force."""

import hashlib
import threading
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from approvals import document, states
from approvals.matching import Compiled, Counted, Judgement, Wish, compile_rules, judge
from approvals.models import Activation, PolicySet
from journal import sql
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE
from ledger import holds, same_calls
from ledger.rows import as_uuid, vendor_id
from sessions import fences, projects
from sessions.models import ENDED, Project
from sessions.records import record
from sessions.refused import RefusedError

_KEPT: Final = 64  # sets whose compiled rules a process remembers
_lock = threading.Lock()
_compiled: dict[UUID, tuple[str, Compiled]] = {}


class InForce(NamedTuple):
    """The rules that hold in a project now. `name` is "house@3"; `mode` is observe or enforce."""

    policy_set: UUID
    name: str
    mode: str
    compiled: Compiled

    def judge(self, wish: Wish, counted: Counted) -> Judgement:
        """What these rules say of `wish`."""
        return judge(self.compiled, wish, self.mode, counted)


class Grounds(NamedTuple):
    """What every plan and dispatch must know first: the rules in force, and whether anything at all is stopped.

    `final` tells whether people denied anything for good in the session that was asked about, `ended` whether it has
    ended, `patterns` is the version of the patterns of refs of the repository that was asked about.
    """

    force: InForce | None
    stops: bool
    final: bool
    ended: bool
    patterns: int | None
    paced: bool  # a report of the agent that was asked about paces some of its plans
    broken: bool  # the breaker of the tool that was asked about is open
    fence: int | None = (
        None  # the least lease epoch under which the session, or the task, may be written
    )
    leased: bool = False  # the session is of the mode whose workers must name their epoch
    same_call: bool = False  # the intent that was asked about may have happened in another session


def in_force(project: UUID) -> InForce | None:
    """What is in force in `project`, or None where nothing ever was: such a project only observes."""
    return grounds(project).force


def grounds(
    project: UUID,
    session: UUID | None = None,
    repository: UUID | None = None,
    *,
    agent: UUID | None = None,
    tool: str = "",
    now_us: int = 0,
    task: UUID | None = None,
    intent: str = "",
) -> Grounds:
    """What is in force in `project`, and whether a person has stopped anything there, in one query by indexes.

    Rules never change once loaded, so each process compiles a set once.
    """
    identity, asked = vendor_id(project), vendor_id(session or _NOTHING)
    about = [
        identity,
        asked,
        asked,
        vendor_id(repository or _NOTHING),
        vendor_id(agent or _NOTHING),
        now_us,
    ]
    fenced = fences.place(project, session or _NOTHING, task)
    found = sql.rows(
        _GROUNDS, [*about, identity, tool, *fenced, asked, identity, intent, asked, identity]
    )
    policy_set, mode, stops, final, ended, patterns, paced, broken, fence, worked, same = found[0]
    leased, unknown = worked == "leased", bool(same and intent)
    present = (
        bool(stops),
        bool(final),
        bool(ended),
        patterns,
        bool(paced),
        bool(broken),
        fence,
        leased,
        unknown,
    )
    named = as_uuid(policy_set)
    if named is None:
        return Grounds(None, *present)
    name, compiled = _rules(named)
    return Grounds(InForce(named, name, mode, compiled), *present)


_ENDED: Final = ", ".join(f"'{status}'" for status in ENDED)
_NOTHING: Final = UUID(int=0)
_GROUNDS: Final = (
    "SELECT current.policy_set_id, current.mode,"
    " EXISTS (SELECT 1 FROM ledger_hold WHERE project_id = %s AND lifted_at_us IS NULL),"
    " EXISTS (SELECT 1 FROM approvals_gate WHERE session_id = %s AND status = 'denied_final'),"
    f" EXISTS (SELECT 1 FROM agent_sessions_session WHERE id = %s AND status IN ({_ENDED})),"
    " (SELECT patterns_version FROM agent_sessions_repository WHERE id = %s),"
    " EXISTS (SELECT 1 FROM agent_sessions_capacity WHERE agent_id = %s AND paced_until_us > %s),"
    " EXISTS (SELECT 1 FROM ledger_breaker WHERE project_id = %s AND tool = %s AND opened_at_us IS NOT NULL),"
    f" {fences.FENCE_SQL}, (SELECT mode FROM agent_sessions_session WHERE id = %s), EXISTS ({same_calls.UNKNOWN_SQL})"
    " FROM (SELECT 1) AS one"
    " LEFT JOIN approvals_activation AS current ON current.project_id = %s AND current.is_current"
)


def stored(project: Project, text: str) -> PolicySet | None:
    """The set that was loaded from exactly this text, if any."""
    return (
        PolicySet.objects.filter(project=project, sha256=_sha256(text)).order_by("version").last()
    )


@transaction.atomic(savepoint=False)
def load(project: Project, text: str, actor: str = SYSTEM_SOURCE) -> PolicySet:
    """Keep `text` as the next version under its name; the same text again is the set that there is.

    Loading puts nothing in force. `actor` is a pseudonym, or "gatebook" for a command. Raises DocumentError.
    """
    rules = document.read(text)
    _lock_project(project)
    known = stored(project, text)
    if known is not None:
        return known
    earlier = PolicySet.objects.filter(project=project, name=rules["name"]).aggregate(
        latest=Max("version")
    )
    policy_set = PolicySet.objects.create(
        project=project,
        name=rules["name"],
        version=(earlier["latest"] or 0) + 1,
        text=text,
        sha256=_sha256(text),
        rules=rules,
        loaded_by=actor,
        loaded_at_us=now_us(),
    )
    facts = {
        "version": policy_set.version,
        "rules": len(rules["rules"]),
        "sha256": policy_set.sha256,
    }
    _record(policy_set, "policy.loaded", actor, facts, {"name": policy_set.name, "text": text})
    return policy_set


@transaction.atomic(savepoint=False)
def activate(
    project: Project,
    policy_set: PolicySet,
    mode: str,
    user: User | None = None,
    actor: str = SYSTEM_SOURCE,
) -> Activation:
    """Put `policy_set` in force in `mode` from now on; what is in force in that mode already stays as it is.

    Waits for whoever is between looking and acting in the project (ledger/holds.py): a plan or a dispatch goes by the
    old rules or by the new ones, and of two who activate at once the later replaces the earlier. Raises RefusedError.
    """
    projects.expect_life(project)
    if mode not in states.MODES:
        raise RefusedError(f"There is no mode {mode!r}: choose one of {', '.join(states.MODES)}.")
    if policy_set.project_id != project.id:
        raise RefusedError("These rules belong to another project.")
    holds.alone(project.id)
    before = current(project)
    if before is not None and (before.policy_set_id, before.mode) == (policy_set.id, mode):
        return before
    Activation.objects.filter(project=project, is_current=True).update(is_current=False)
    activation = Activation.objects.create(
        project=project,
        policy_set=policy_set,
        mode=mode,
        user=user,
        actor=actor,
        activated_at_us=now_us(),
    )
    facts = {
        "version": policy_set.version,
        "mode": mode,
        "mode_before": before.mode if before else "observe",
        "policy_set_before": before.policy_set_id.hex if before else None,
    }
    _record(policy_set, "policy.activated", actor, facts, {"name": policy_set.name})
    return activation


def current(project: Project) -> Activation | None:
    """The activation in force, with its set; None where nothing ever was."""
    return (
        Activation.objects.select_related("policy_set", "user")
        .filter(project=project, is_current=True)
        .first()
    )


def mode_of(project: UUID) -> str:
    """The project's mode: observe until rules are put in force with enforce."""
    force = in_force(project)
    return force.mode if force is not None else "observe"


def _rules(policy_set: UUID) -> tuple[str, Compiled]:
    found = _compiled.get(policy_set)
    if found is None:
        row = PolicySet.objects.values_list("name", "version", "rules").get(pk=policy_set)
        found = (f"{row[0]}@{row[1]}", compile_rules(row[2]))
        with _lock:
            if len(_compiled) >= _KEPT:
                _compiled.clear()
            _compiled[policy_set] = found
    return found


def _lock_project(project: Project) -> None:
    """Load one at a time; agents go on working, since a foreign key needs no more than the row's key."""
    Project.objects.select_for_update(no_key=True).only("id").get(pk=project.pk)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _record(
    policy_set: PolicySet, kind: str, actor: str, facts: dict[str, Any], words: dict[str, Any]
) -> None:
    record(
        policy_set.project_id,
        kind,
        actor=actor,
        subject=policy_set.id,
        facts=facts,
        words={**facts, **words},
    )
