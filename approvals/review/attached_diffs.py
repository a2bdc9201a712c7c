"""Diffs that an agent recorded as artifacts of a request: what it says the call changes.

An artifact belongs to a request if the agent recorded it for the effect, if the arguments or the
preconditions name its SHA-256 or its handle, or if its name has a commit that the call pushes.
Gatebook does not compare the diff with the repository, so pages show it as the agent's statement.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.diff.from_arguments import Changes
from approvals.diff.hidden_characters import iterate_strings
from approvals.diff.patch_parser import parse_patch
from approvals.models import Gate
from db.compiled_query import CompiledQuerySet
from journal.models import Entry
from journal.text_caches import cache_texts
from sessions.artifacts import ChangedContent, open_content
from sessions.models import Artifact

MAX_ATTACHED: Final = 3  # diffs of one request, the newest
MAX_BYTES: Final = 256 * 1024  # of a diff that a page shows
_MAX_READ: Final = 1_000  # artifacts of one request
_MAX_NAMED: Final = 16  # artifacts that the arguments name
_MAX_CHARACTERS: Final = 4_096  # of an argument that is searched for names of artifacts
_NAMED: Final = re.compile(r"\b(?:([0-9a-f]{64})|a_([0-9]{1,15}))\b")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
_PUSHED: Final = re.compile(r"(?<![\w:=])\+?([0-9a-f]{7,40}):[\w/]")  # of a refspec
_SHORT: Final = 7  # characters of a commit's hash that a name has at least
_MAX_COMMITS: Final = 8
_MEDIA_TYPES: Final = ("text/x-diff", "text/x-patch", "text/diff", "text/patch")
_TYPES: Final = ("diff", "patch")
_ENDINGS: Final = (".diff", ".patch")


@dataclass(frozen=True, slots=True)
class AttachedDiff:
    """A recorded diff. `sha256` names its content, so the hash of a card covers what is shown."""

    artifact: UUID
    project: UUID
    handle: str
    name: str
    sha256: str
    size: int  # bytes
    is_stored: bool

    @property
    def changes(self) -> Changes:
        """Its files; none if it is not stored, too large, changed, or no patch."""
        if not self.is_stored or self.size > MAX_BYTES:
            return Changes()
        try:
            return _read_changes(self.project, self.sha256)
        except ChangedContent:
            return Changes()

    @property
    def why_not_shown(self) -> str:
        """Why no files are shown; empty if they are."""
        if not self.is_stored:
            return "its content was not sent"
        if self.size > MAX_BYTES:
            return f"it is longer than {MAX_BYTES // 1024} KiB"
        try:
            changes = _read_changes(self.project, self.sha256)
        except ChangedContent:
            return "its stored bytes were changed after they were recorded; tell an administrator"
        return "" if changes.files else "its content is not a complete patch"


def load_attached_diffs(gate: Gate, plan: Mapping[str, Any]) -> tuple[AttachedDiff, ...]:
    """Load the diffs recorded for the effect of a request, oldest first. One query."""
    hashes, positions = _list_named((plan.get("arguments"), plan.get("preconditions")))
    rows: Iterable[Artifact]
    commits = _list_pushed_commits(plan.get("arguments"))
    if hashes or positions or commits:
        is_named = Q(sha256__in=hashes) | Q(opened_position__in=positions)
        for commit in commits:
            is_named |= Q(name__contains=commit)
        of_session = _is_recorded_of(gate.project_id, session=gate.session_id)
        of_effect = _is_recorded_of(gate.project_id, effect=gate.effect_id)
        rows = _select_diffs(gate.project_id, of_effect | of_session & is_named)
    else:
        rows = _OF_EFFECT.rows(project=gate.project_id, effect=gate.effect_id)
    listed = sorted(rows, key=lambda row: row.opened_position)[-MAX_ATTACHED:]
    return tuple(
        AttachedDiff(
            row.id,
            row.project_id,
            str(row),
            row.name,
            row.sha256,
            row.size,
            row.stored_at_us is not None,
        )
        for row in listed
    )


def _select_diffs(project: UUID, belongs: Q) -> "QuerySet[Artifact]":
    is_diff = Q(type__in=_TYPES) | Q(media_type__in=_MEDIA_TYPES)
    for ending in _ENDINGS:
        is_diff |= Q(name__endswith=ending)
    # Not in order: asked for one, a database may walk through all artifacts of the project.
    return Artifact.objects.filter(belongs, is_diff, project=project)[:_MAX_READ]


def _is_recorded_of(project: Any, **place: Any) -> Q:
    """Return the condition of artifacts that an agent recorded for an effect, or in a session.

    Those for an effect may be of another session of the project. The entry says of what they are:
    columns alone, which the owner of the database can write, show a reviewer nothing.
    """
    recorded = Entry.objects.filter(
        position=OuterRef("opened_position"),
        project=project,
        kind="artifact.recorded",
        lane__in=_RECORDING_LANES,
        subject=OuterRef("id"),
        **place,
    )
    return Q(Exists(recorded), **place)


_RECORDING_LANES: Final = ("command", "evidence")  # a claim records no artifact

_OF_EFFECT: Final = CompiledQuerySet(
    lambda project, effect: _select_diffs(project, _is_recorded_of(project, effect=effect)),
    project=UUID,
    effect=UUID,
)


def _list_pushed_commits(arguments: Any) -> list[str]:
    """List short hashes of the commits that a call pushes, not of those that it removes."""
    named = arguments if isinstance(arguments, Mapping) else {}
    listed = named.get("commits")
    rows = listed if isinstance(listed, list) else []
    texts = [row.get("sha") for row in rows if isinstance(row, Mapping)]
    texts += [named.get("commit"), named.get("sha")]
    hashes = [text.casefold() for text in texts if isinstance(text, str)]
    for text in iterate_strings(named.get("command")):
        hashes += _PUSHED.findall(text[:_MAX_CHARACTERS])
    found_hashes = (match[0] for text in hashes if (match := _COMMIT.fullmatch(text)))
    return list(dict.fromkeys(text[:_SHORT] for text in found_hashes))[:_MAX_COMMITS]


def _list_named(values: Iterable[Any]) -> tuple[list[str], list[int]]:
    """List the hashes and the positions of artifacts that short texts name."""
    hashes: list[str] = []
    positions: list[int] = []
    for value in values:
        for text in iterate_strings(value):
            if len(text) > _MAX_CHARACTERS or len(hashes) + len(positions) >= _MAX_NAMED:
                continue
            for match in _NAMED.finditer(text):
                if match[1]:
                    hashes.append(match[1])
                else:
                    positions.append(int(match[2]))
    return hashes[:_MAX_NAMED], positions[:_MAX_NAMED]


@cache_texts(16)
def _read_changes(project: UUID, sha256: str) -> Changes:
    """Read and parse stored bytes, which have this hash. Raises ChangedContent."""
    try:
        with open_content(project, sha256) as file:
            text = file.read().decode()
    except (OSError, UnicodeDecodeError):
        return Changes()
    return Changes(tuple(parse_patch(text)))
