"""Columns of an effect from a plan, by command or report."""

import hashlib
import hmac
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts import repositories
from accounts.models import Project, Repository
from api.problems import Problem
from api.schemas import core
from api.strictjson import parser
from sessions import moved_refs


def compute_intent_digest(tool: str, arguments: Any, free_text: list[str]) -> str:
    """Return `v1:` and the keyed hash of the intent, ignoring `free_text`."""
    if free_text and isinstance(arguments, dict):
        arguments = {name: value for name, value in arguments.items() if name not in free_text}
    text = parser.to_intent_text(tool, arguments)
    return "v1:" + hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()


def resolve_effect_key(fields: core.PlanFields, digest: str) -> str:
    """Return the effect key, sent or derived from call id, intent and ordinal."""
    if fields.effect_key:
        return fields.effect_key
    if not fields.call_id:
        detail = (
            "The effect key is missing. Send `effect_key`, or `call_id` (and `ordinal`) to derive"
            " it."
        )
        raise Problem(422, "effect_key_missing", detail, pointer="/effect_key")
    return f"{fields.call_id}:{digest[3:19]}:{fields.ordinal}"


def load_target_columns(
    project: UUID, session: UUID, target: core.Target | None, arguments: Any
) -> dict[str, Any]:
    """Return the columns of a target, with ref class and pattern version.

    Stores a repository that is named for the first time. A ref without a repository is classified
    by the patterns of a new repository.
    """
    if target is None:
        return {}
    values: dict[str, Any] = {
        "ref": target.ref or "",
        "moved_refs": moved_refs.resolve_moved_refs(session, target.ref or "", arguments),
        "environment": target.environment or "",
        "resource": target.resource or "",
    }
    repository = None
    if target.repository:
        repository = repositories.ensure_repository(Project(id=project), target.repository)
        values["repository_id"] = repository.id
    if target.ref:
        ref_class, version = repositories.classify_moved_refs(
            repository or Repository(), values["moved_refs"]
        )
        values |= {"ref_class": ref_class, "ref_patterns_version": version if repository else None}
    return values


def build_plan_columns(fields: core.PlanFields, redactions: int) -> dict[str, Any]:
    """Return the columns of a plan other than tool, intent and target."""
    return {
        "call_id": fields.call_id or "",
        "turn": fields.turn or "",
        "claimed_class": fields.tool_class or "",
        "redactions": redactions,
    }
