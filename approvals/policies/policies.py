"""The one writer of PolicySet and Activation: load, activate and read policies."""

import hashlib
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from accounts import projects
from accounts.audit_log import record_admin_entry
from accounts.models import Project
from approvals.gates import statuses
from approvals.models import Activation, PolicySet
from approvals.policies import policies_yaml
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal.entries import SYSTEM_SOURCE
from ledger import stops as ledger_stops


def find_policy_set(project: Project, text: str) -> PolicySet | None:
    """Return the set that was loaded from exactly this text, if any."""
    return (
        PolicySet.objects.filter(project=project, sha256=digest_policy_text(text))
        .order_by("version")
        .last()
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
        sha256=digest_policy_text(text),
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
    ledger_stops.hold_back_dispatches(project.id)
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


def _lock_project(project: Project) -> None:
    """Serialize loading per project; agents' foreign keys do not wait."""
    Project.objects.select_for_update(no_key=True).only("id").get(pk=project.pk)


def digest_policy_text(text: str) -> str:
    """Return the SHA-256 of the text of rules, as its entry and its row have it."""
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
