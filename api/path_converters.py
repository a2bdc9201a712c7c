"""URL references to objects: id or handle (e_12), and names that the agent chose.

A session is also named by its key. An effect, and its newest gate, is also named within a session,
by `SESSION;effect_key=KEY` or `SESSION;call_id=ID`; a task by `SESSION;task=KEY`. Each is one
segment of the path, so that a name with a slash is found by the parameters of a list instead.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from django.urls import register_converter
from django.urls.converters import UUIDConverter

from api.problems import Problem, build_name_not_found
from approvals.models import Gate
from db.ids import derive_uuid
from ledger.models import Effect
from ledger.partial_indexes import HAS_CALL_ID
from sessions import lookup
from sessions.models import Artifact, Lease, Message, Session, Task

# URL parameter name -> the letter of its handles, and the model whose index resolves their numbers.
HANDLE_TYPES: Final[Mapping[str, tuple[str, type]]] = {
    "session": ("s", Session),
    "task": ("t", Task),
    "effect": ("e", Effect),
    "gate": ("g", Gate),
    "artifact": ("a", Artifact),
    "lease": ("l", Lease),
    "message": ("m", Message),
}
# URL parameter name -> the names within a session that it also takes.
NAMES_IN_SESSION: Final[Mapping[str, tuple[str, ...]]] = {
    "effect": ("effect_key", "call_id"),
    "gate": ("effect_key", "call_id"),
    "task": ("task",),
}
_UUID: Final = UUIDConverter.regex
_NUMBER: Final = "[1-9][0-9]{0,17}"
SESSION_PATTERN: Final = r"[^/]{1,200}"


def url_pattern(name: str) -> str:
    """Return the URL pattern of a parameter."""
    if name == "session":
        return SESSION_PATTERN
    if name not in HANDLE_TYPES:
        return _UUID
    names = "|".join(NAMES_IN_SESSION.get(name, ()))
    in_session = f"|[^/;]{{1,200}};(?:{names})=[^/]{{1,300}}" if names else ""
    return f"{_UUID}|{HANDLE_TYPES[name][0]}_{_NUMBER}{in_session}"


def register_converters() -> None:
    """Register a URL converter for every parameter."""
    for name in HANDLE_TYPES:
        converter = type(f"{name.title()}Converter", (_Converter,), {"regex": url_pattern(name)})
        register_converter(converter, name)


class _Converter:
    """An id, or a handle or key that is resolved after authentication."""

    regex = ""

    def to_python(self, value: str) -> UUID | str:
        try:
            return UUIDConverter().to_python(value) if len(value) == 36 else value
        except ValueError:
            return value

    def to_url(self, value: UUID | str) -> str:
        return str(value)


def resolve_path(project: UUID, path: Mapping[str, UUID | str]) -> dict[str, UUID]:
    """Resolve path values to ids. Problem 404 for an unknown handle or key."""
    return {
        name: value if isinstance(value, UUID) else _find_id(project, name, value)
        for name, value in path.items()
    }


def _find_id(project: UUID, name: str, value: str) -> UUID:
    session, separator, reference = value.partition(";")
    if separator and name in NAMES_IN_SESSION:
        kind, _, given = reference.partition("=")
        return _find_in_session(project, name, _find_id(project, "session", session), kind, given)
    letter, model = HANDLE_TYPES[name]
    identity: UUID | None = None
    number = value.removeprefix(f"{letter}_")
    if number != value and number.isascii() and number.isdigit() and len(number) <= 18:
        manager = model.objects  # type: ignore[attr-defined]
        rows = manager.filter(project=project, opened_position=int(number))
        identity = rows.values_list("id", flat=True).first()
    elif name == "session" and len(value) == 36 and (by_id := _parse_uuid(value)) is not None:
        identity = by_id if Session.objects.filter(project=project, id=by_id).exists() else None
    if identity is None and name == "session":
        key = lookup.derive_session_id(project, value)
        identity = key if Session.objects.filter(project=project, id=key).exists() else None
    if identity is None:
        raise build_name_not_found(name)
    return identity


def _parse_uuid(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None


def _find_in_session(project: UUID, name: str, session: UUID, kind: str, given: str) -> UUID:
    """Return the id of a task, an effect or its newest gate by its name in a session.

    Problem 404 for an unknown name, 409 for a call id of several effects.
    """
    if kind == "task":
        tasks = Task.objects.filter(project=project, session=session, key=given)
        ids = list(tasks.values_list("id", flat=True)[:1])
    elif kind == "effect_key":
        ids = [derive_uuid(session, given)]
        ids = list(Effect.objects.filter(project=project, id__in=ids).values_list("id", flat=True))
    else:
        effects = Effect.objects.filter(HAS_CALL_ID, session=session, call_id=given)
        ids = list(effects.order_by("opened_position").values_list("id", flat=True)[:2])
    if len(ids) > 1:
        detail = (
            "Several effects of the session have this call id. Name the effect by its id or its"
            " `effect_key`; GET /effects lists them with `session` and `call_id`."
        )
        raise Problem(409, "CALL_REUSED", detail)
    if ids and name == "gate":
        gates = Gate.objects.filter(project=project, effect__in=ids)
        ids = list(gates.order_by("-opened_position").values_list("id", flat=True)[:1])
    if not ids:
        raise build_name_not_found(name, owner="session")
    return ids[0]
