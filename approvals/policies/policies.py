"""The one writer of PolicySet and Activation: load, activate and read policies."""

import hashlib
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from accounts import projects
from accounts.audit_log import record_admin_entry
from accounts.models import Project
from approvals.gates import statuses
from approvals.models import Activation, PolicySet
from approvals.policies import policies_yaml
from approvals.policies.engine import (
    CompiledPolicy,
    PolicyDecision,
    PolicyInput,
    RateCounter,
    compile_rules,
    digest_parts,
    evaluate_rules,
)
from db import raw_sql
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal.entries import SYSTEM_SOURCE
from ledger import same_calls
from ledger import stops as ledger_stops
from ledger.store.effect_rows import to_uuid, vendor_id
from sessions import fencing
from sessions.models import ENDED

_MAX_CACHED_SETS: Final = 64  # compiled sets cached by a process
_cache_lock = threading.Lock()
_compiled_sets: dict[UUID, tuple[str, CompiledPolicy]] = {}


class ActivePolicy(NamedTuple):
    """The active policy of a project. `name` is "acme@3"; `mode` observe or enforce."""

    policy_set: UUID
    name: str
    mode: str
    compiled: CompiledPolicy

    def evaluate(self, policy_input: PolicyInput, count: RateCounter) -> PolicyDecision:
        """Decide `policy_input` by these rules."""
        return evaluate_rules(self.compiled, policy_input, self.mode, count)


class PolicyEvaluation(NamedTuple):
    """The policy result for one input, and the columns that its effect stores."""

    policy: ActivePolicy
    policy_input: PolicyInput
    decision: PolicyDecision

    @property
    def is_asking(self) -> bool:
        """True if people must approve and the policy is enforced."""
        return self.policy.mode == "enforce" and self.decision.outcome == "ask"

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "policy_outcome": self.decision.outcome,
            "policy_rule": f"{self.policy.name}/{self.decision.rule}",
            "policy_tool_class": (
                f"{self.policy_input.tool_class}/{self.policy_input.reversibility}"
            ),
            "policy_parts_digest": digest_parts(self.policy_input.parts),
            "policy_enforced": self.policy.mode == "enforce",
        }


class CommandContext(NamedTuple):
    """What every plan and dispatch needs to know, loaded in one query.

    `has_stops` is about the project, the rest about the session, agent, tool, repository and intent
    that were named.
    """

    policy: ActivePolicy | None
    has_stops: bool = False
    has_session_denial: bool = False  # an action was denied for the session
    session_ended: bool = False
    patterns_version: int | None = None  # of the repository's ref patterns
    is_throttled: bool = False  # the agent's capacity report throttles some of its plans
    circuit_open: bool = False  # the tool's circuit breaker is open
    fence: int | None = None  # the least lease epoch that may write the session or the task
    leased: bool = False  # workers of the session must name their lease epoch
    same_call: bool = False  # the intent may have happened in another session


def load_active_policy(project: UUID) -> ActivePolicy | None:
    """Return the active policy, or None if none was ever active (observe only)."""
    return load_command_context(project).policy


def load_command_context(
    project: UUID,
    session: UUID | None = None,
    repository: UUID | None = None,
    *,
    agent: UUID | None = None,
    tool: str = "",
    now_us: int = 0,
    task: UUID | None = None,
    intent: str = "",
) -> CommandContext:
    """Load the active policy and the context of a plan or dispatch in one query.

    Rules never change once loaded, so each process compiles a set once.
    """
    project_id, session_id = vendor_id(project), vendor_id(session or _NIL_UUID)
    parameters = [
        project_id,
        session_id,
        session_id,
        vendor_id(repository or _NIL_UUID),
        vendor_id(agent or _NIL_UUID),
        now_us,
        project_id,
        tool,
        *fencing.fence_parameters(project, session or _NIL_UUID, task),
        session_id,
        project_id,
        intent,
        session_id,
        project_id,
    ]
    (row,) = raw_sql.fetch_rows(_CONTEXT_SQL, parameters)
    policy_set, mode, stops, denial, ended, patterns, throttled, broken, fence, work, same = row
    policy_set_id = to_uuid(policy_set)
    policy = None
    if policy_set_id is not None:
        name, compiled = _load_compiled(policy_set_id)
        policy = ActivePolicy(policy_set_id, name, mode, compiled)
    return CommandContext(
        policy,
        bool(stops),
        bool(denial),
        bool(ended),
        patterns,
        bool(throttled),
        bool(broken),
        fence,
        work == "leased",
        bool(same and intent),
    )


_ENDED: Final = ", ".join(f"'{status}'" for status in ENDED)
_NIL_UUID: Final = UUID(int=0)
_CONTEXT_SQL: Final = (
    "SELECT current.policy_set_id, current.mode,"
    " EXISTS (SELECT 1 FROM ledger_stop WHERE project_id = %s AND lifted_at_us IS NULL),"
    " EXISTS (SELECT 1 FROM approvals_gate WHERE session_id = %s AND status = 'denied_session'),"
    f" EXISTS (SELECT 1 FROM agent_sessions_session WHERE id = %s AND status IN ({_ENDED})),"
    " (SELECT patterns_version FROM accounts_repository WHERE id = %s),"
    " EXISTS (SELECT 1 FROM agent_sessions_capacity WHERE agent_id = %s AND paced_until_us > %s),"
    " EXISTS (SELECT 1 FROM ledger_breaker WHERE project_id = %s AND tool = %s AND opened_at_us"
    " IS NOT NULL),"
    f" {fencing.FENCE_SQL}, (SELECT mode FROM agent_sessions_session WHERE id = %s), EXISTS"
    f" ({same_calls.UNKNOWN_CALLS_SQL})"
    " FROM (SELECT 1) AS one"
    " LEFT JOIN approvals_activation AS current ON current.project_id = %s AND current.is_current"
)


def find_policy_set(project: Project, text: str) -> PolicySet | None:
    """Return the set that was loaded from exactly this text, if any."""
    return (
        PolicySet.objects.filter(project=project, sha256=_sha256(text)).order_by("version").last()
    )


@transaction.atomic(savepoint=False)
def load_policy_set(project: Project, text: str, actor: str = SYSTEM_SOURCE) -> PolicySet:
    """Store `text` as the next version under its name; return the set.

    The same text again returns the existing set. Loading activates nothing. `actor` is a pseudonym,
    or "gatebook" for a command. Raises DocumentError.
    """
    rules = policies_yaml.parse_policies(text)
    _lock_project(project)
    existing = find_policy_set(project, text)
    if existing is not None:
        return existing
    earlier = PolicySet.objects.filter(project=project, name=rules["name"]).aggregate(
        latest=Max("version")
    )
    policy_set = PolicySet(
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
    _record_policy_entry(
        policy_set, "policy.loaded", actor, facts, {"name": policy_set.name, "text": text}
    )
    policy_set.save(force_insert=True)
    return policy_set


@transaction.atomic(savepoint=False)
def activate_policy_set(
    project: Project,
    policy_set: PolicySet,
    mode: str,
    user: User | None = None,
    actor: str = SYSTEM_SOURCE,
) -> Activation:
    """Activate `policy_set` in `mode`; a repeated activation changes nothing.

    Waits for concurrent dispatches in the project (ledger/stops.py): each uses the old rules or the
    new ones. Of two concurrent activations the later replaces the earlier. Raises ChangeRefused.
    """
    projects.require_active_project(project)
    if mode not in statuses.POLICY_MODES:
        raise ChangeRefused(
            f"Unknown mode {mode!r}. Choose one of {', '.join(statuses.POLICY_MODES)}."
        )
    if policy_set.project_id != project.id:
        raise ChangeRefused(
            "These rules belong to another project. Choose a version of this project."
        )
    ledger_stops.lock_exclusive(project.id)
    before = load_activation(project)
    if before is not None and (before.policy_set_id, before.mode) == (policy_set.id, mode):
        return before
    facts = {
        "version": policy_set.version,
        "mode": mode,
        "mode_before": before.mode if before else "observe",
        "policy_set_before": before.policy_set_id.hex if before else None,
    }
    # The entry comes first: guards refuse other rules without one (approval_guards.py).
    position = _record_policy_entry(
        policy_set, "policy.activated", actor, facts, {"name": policy_set.name}
    )
    Activation.objects.filter(project=project, is_current=True).update(is_current=False)
    return Activation.objects.create(
        project=project,
        policy_set=policy_set,
        mode=mode,
        user=user,
        actor=actor,
        activated_at_us=now_us(),
        position=position,
    )


def restore_policy_sets(changes: Sequence[RowChange]) -> None:
    """Restore rules to what the journal gives (manage.py rebuild)."""
    write_row_changes(PolicySet, changes)


def restore_activations(changes: Sequence[RowChange]) -> None:
    """Restore activations to what the journal gives (manage.py rebuild)."""
    write_row_changes(Activation, changes)


def load_activation(project: Project) -> Activation | None:
    """Return the current activation with its set; None if there never was one."""
    return (
        Activation.objects.select_related("policy_set", "user")
        .filter(project=project, is_current=True)
        .first()
    )


def _load_compiled(policy_set: UUID) -> tuple[str, CompiledPolicy]:
    rules = _compiled_sets.get(policy_set)
    if rules is None:
        row = PolicySet.objects.values_list("name", "version", "rules").get(pk=policy_set)
        rules = (f"{row[0]}@{row[1]}", compile_rules(row[2]))
        with _cache_lock:
            if len(_compiled_sets) >= _MAX_CACHED_SETS:
                _compiled_sets.clear()
            _compiled_sets[policy_set] = rules
    return rules


def _lock_project(project: Project) -> None:
    """Serialize loading per project; agents' foreign keys do not wait."""
    Project.objects.select_for_update(no_key=True).only("id").get(pk=project.pk)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _record_policy_entry(
    policy_set: PolicySet, kind: str, actor: str, facts: dict[str, Any], body_fields: dict[str, Any]
) -> int:
    return record_admin_entry(
        policy_set.project_id,
        kind,
        actor=actor,
        subject=policy_set.id,
        facts=facts,
        words={**facts, **body_fields},
    )
