"""Select the effects of a case file: those of an incident, a session or the matches of a query."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from accounts.models import Project
from display.references import EFFECT, ENTRY, GATE, SESSION
from investigation.models import Incident, IncidentEntry, IncidentMember
from investigation.query import edit, execute
from investigation.query.permalink import make_ages_absolute
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session

MAX_EFFECTS: Final = 500  # of one case file, the newest


@dataclass(slots=True)
class CaseSelection:
    """The effects of a case file, oldest first, and where they come from.

    `more` is True if there are further effects. `sessions` are shown with their own entries;
    `positions` are further entries of the journal.
    """

    source: str  # "i_12", "s_41", or a query without ages
    label: str
    effects: list[Any] = field(default_factory=list)
    more: bool = False
    sessions: list[UUID] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)


def select_by_query(project: Project, text: str, now_us: int) -> CaseSelection:
    """Select the effects that match, or that belong to the rows that match. Raises QueryError."""
    text = make_ages_absolute(text, now_us)
    compiled = execute.compile_query(text, project, now_us)
    if compiled.query.grouping is not None:
        compiled = execute.compile_parsed_query(
            edit.parse_without_grouping(compiled.query), project, now_us
        )
    page = execute.load_results(compiled, lambda rows: rows, size=MAX_EFFECTS)
    ids = [row.pk for row in page.rows]
    selection = CaseSelection(text, f"Search: {text}")
    conditions = {
        "effect": lambda: Q(pk__in=ids),
        "session": lambda: Q(session__in=ids),
        "gate": lambda: Q(pk__in=[row.effect_id for row in page.rows]),
        "exemption": lambda: Q(permission_ref__in=[pk.hex for pk in ids]),
        "event": lambda: Q(pk__in=[row.effect for row in page.rows if row.effect]),
    }
    if compiled.entity.name == "session":
        selection.sessions = ids
    if compiled.entity.name == "event":
        selection.positions = [row.opened_position for row in page.rows]
    _load_effects(project, conditions[compiled.entity.name](), selection)
    selection.more |= page.older is not None or page.looked_back_to is not None
    return selection


def select_by_session(project: Project, session: Session) -> CaseSelection:
    """Select the effects of a session."""
    selection = CaseSelection(str(session), f"Session {session}", sessions=[session.id])
    _load_effects(project, Q(session=session), selection)
    return selection


def select_by_incident(project: Project, incident: Incident) -> CaseSelection:
    """Select the effects that are linked to an incident, and those of its sessions and requests."""
    members = IncidentMember.objects.filter(incident=incident, removed_position__isnull=True)
    numbers: dict[str, list[int]] = {SESSION: [], EFFECT: [], GATE: [], ENTRY: []}
    for kind, number in members.order_by("added_position").values_list("kind", "number"):
        numbers[kind].append(number)
    sessions = project.sessions.filter(opened_position__in=numbers[SESSION])
    selection = CaseSelection(
        str(incident), f"Incident {incident}", sessions=list(sessions.values_list("id", flat=True))
    )
    of_entries = Entry.objects.filter(
        project=project.id, position__in=numbers[ENTRY], effect__isnull=False
    )
    condition = (
        Q(session__in=selection.sessions)
        | Q(opened_position__in=numbers[EFFECT])
        | Q(gates__opened_position__in=numbers[GATE])
        | Q(pk__in=list(of_entries.values_list("effect", flat=True)))
    )
    history = IncidentEntry.objects.filter(incident=incident).order_by("-position")
    selection.positions = [
        *numbers[ENTRY],
        *history.values_list("position", flat=True)[:MAX_EFFECTS],
    ]
    _load_effects(project, condition, selection)
    return selection


def _load_effects(project: Project, condition: Q, selection: CaseSelection) -> None:
    ids = Effect.objects.filter(condition, project=project).order_by("-opened_position")
    chosen = list(ids.values_list("pk", flat=True).distinct()[: MAX_EFFECTS + 1])
    selection.more = len(chosen) > MAX_EFFECTS
    rows = Effect.objects.filter(pk__in=chosen[:MAX_EFFECTS])
    selection.effects = list(
        rows.select_related("session", "agent", "repository").order_by("opened_position")
    )
