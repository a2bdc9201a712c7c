"""Guards of erasure requests and legal holds: they start and move only with their entries."""

from typing import Final

from db.row_guards import RowGuard, build_guards, entry_says

_REQUEST: Final = "erasure_erasurerequest"
_HOLD: Final = "erasure_legalhold"
_PSEUDONYM: Final = (
    "entry.actor = (SELECT pseudonym FROM {{schema}}accounts_person WHERE user_id = NEW.{column})"
)
_SAME_REQUEST: Final = "{fact:request} = {hex:NEW.id}"
# A request of every project has an entry in each.
_ANY_PROJECT: Final = "entry.project IN (SELECT id FROM {schema}accounts_project)"


def _says_moved(kind: str | tuple[str, ...], where: str) -> str:
    return entry_says(
        kind,
        project="entry.project",
        subject="",
        once=True,
        where=f"{_ANY_PROJECT} AND {_SAME_REQUEST} AND {where}",
    )


_GUARDS: Final = (
    RowGuard(
        "erasure_is_requested_with_its_entry",
        _REQUEST,
        "INSERT",
        "NOT "
        + entry_says(
            "erasure.requested",
            project="COALESCE(NEW.project_id, entry.project)",
            subject="",
            position="NEW.requested_position",
            where=f"{_SAME_REQUEST} AND {{fact:subject}} = NEW.subject_kind"
            f" AND {_PSEUDONYM.format(column='asked_by_id')}",
        ),
        "an erasure is requested only with erasure.requested",
    ),
    RowGuard(
        "erasure_is_confirmed_with_its_entry",
        _REQUEST,
        "UPDATE",
        f"NOT {_says_moved('erasure.confirmed', _PSEUDONYM.format(column='confirmed_by_id'))}",
        "an erasure is confirmed only with erasure.confirmed of another person",
        columns=("state", "confirmed_by_id"),
        when="NEW.state = 'confirmed' AND OLD.state <> 'confirmed'"
        " OR NEW.confirmed_by_id IS {distinct} OLD.confirmed_by_id",
    ),
    RowGuard(
        "erasure_is_withdrawn_with_its_entry",
        _REQUEST,
        "UPDATE",
        # A replay carries out what a backup has as a request, and withdraws the request.
        "NOT " + _says_moved(("erasure.withdrawn", "erasure.executed"), "TRUE"),
        "an erasure is withdrawn only with erasure.withdrawn, or when a replay executed it",
        columns=("state",),
        when="NEW.state = 'withdrawn' AND OLD.state <> 'withdrawn'",
    ),
    RowGuard(
        "erasure_is_executed_with_its_entry",
        _REQUEST,
        "UPDATE",
        "OLD.executed_position IS NOT NULL OR NOT "
        + entry_says(
            "erasure.executed",
            project="COALESCE(NEW.project_id, entry.project)",
            subject="",
            position="NEW.executed_position",
            where=f"{_ANY_PROJECT} AND {_SAME_REQUEST}",
        ),
        "an erasure was executed only with erasure.executed",
        columns=("state", "executed_position"),
        when="NEW.executed_position IS {distinct} OLD.executed_position"
        " OR NEW.state = 'scrubbing' AND OLD.state <> 'scrubbing'",
    ),
    RowGuard(
        "legal_hold_is_set_with_its_entry",
        _HOLD,
        "INSERT",
        "EXISTS (SELECT 1 FROM {schema}erasure_legalhold other"
        " WHERE other.set_position = NEW.set_position AND other.id <> NEW.id) OR NOT "
        + entry_says(
            "erasure.hold_set",
            project="NEW.project_id",
            subject="",
            position="NEW.set_position",
            where=f"{{fact:subject}} = NEW.kind AND {_PSEUDONYM.format(column='set_by_id')}",
        ),
        "a legal hold is set only with an erasure.hold_set of its own",
    ),
    RowGuard(
        "legal_hold_is_released_with_its_entry",
        _HOLD,
        "UPDATE",
        "NEW.set_position <> OLD.set_position OR NOT "
        + entry_says(
            "erasure.hold_released",
            project="NEW.project_id",
            subject="",
            once=True,
            where="{fact:hold} = {text:NEW.set_position}"
            f" AND {_PSEUDONYM.format(column='released_by_id')}",
        ),
        "a legal hold is released only with erasure.hold_released",
        when="NEW.released_at_us IS {distinct} OLD.released_at_us"
        " OR NEW.released_by_id IS {distinct} OLD.released_by_id"
        # Without its words, a hold holds nothing.
        " OR CAST(NEW.words AS text) <> CAST(OLD.words AS text)"
        " OR NEW.set_position <> OLD.set_position",
    ),
)

REQUEST_GUARDS: Final = build_guards(
    _GUARDS,
    {_REQUEST: (("id",),), _HOLD: (("id",),)},
    needs=("accounts_person", "accounts_project"),
)
