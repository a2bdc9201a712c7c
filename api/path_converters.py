"""URL references to objects: id or handle (e_12), for a session also its key."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from django.urls import register_converter
from django.urls.converters import UUIDConverter

from api.problems import Problem
from approvals.models import Gate
from ledger.models import Effect
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
_UUID: Final = UUIDConverter.regex
_NUMBER: Final = "[1-9][0-9]{0,17}"
SESSION_PATTERN: Final = r"[^/]{1,200}"


def url_pattern(name: str) -> str:
    """Return the URL pattern of a parameter."""
    if name == "session":
        return SESSION_PATTERN
    return f"{_UUID}|{HANDLE_TYPES[name][0]}_{_NUMBER}" if name in HANDLE_TYPES else _UUID


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
    letter, model = HANDLE_TYPES[name]
    identity: UUID | None = None
    number = value.removeprefix(f"{letter}_")
    if number != value and number.isascii() and number.isdigit() and len(number) <= 18:
        manager = model.objects  # type: ignore[attr-defined]
        rows = manager.filter(project=project, opened_position=int(number))
        identity = rows.values_list("id", flat=True).first()
    elif name == "session":
        key = lookup.derive_session_id(project, value)
        identity = key if Session.objects.filter(project=project, id=key).exists() else None
    if identity is None:
        detail = f"The project has no such {name}. Send its id or handle{_KEY_HINT.get(name, '')}."
        raise Problem(404, "not_found", detail)
    return identity


_KEY_HINT: Final = {"session": ", or its key"}
