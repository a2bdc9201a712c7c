"""Finds the rows that contain a subject, table by table, in windows of bounded size.

A window is read by the primary key. The database only narrows it down with LIKE; the words of each
row are compared in Python (erasure/word_match.py). The preview and the erasure read the same way,
so that one counts what the other erases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db.models import (
    CharField,
    Exists,
    Field,
    Model,
    OuterRef,
    Q,
    QuerySet,
    TextField,
)
from django.db.models.functions import Cast

from accounts.models import Person
from accounts.sign_ins import list_counted_names
from approvals.gates.comments import list_mentioned_names
from erasure.models import ErasureRequest, LegalHold
from erasure.recorded_holds import load_recorded_holds
from erasure.text_columns import TextTable, Treatment
from erasure.word_match import (
    ERASED,
    DigestMatcher,
    Matcher,
    WordMatcher,
    list_spellings,
    matches_value,
)
from investigation.fulltext import store
from investigation.fulltext.sql import TOKEN_DIGITS, WordsField
from investigation.fulltext.tokenizer import tokenize
from journal.models import Entry
from ledger.models import Effect, UsedNamePlan

WINDOW_ROWS: Final = 5_000
# Entries about erasures themselves: they hold a reason and counts, and prove what was erased.
_OWN_KINDS: Final = "erasure."
# What a person decided. A request may keep these texts as evidence of the decision.
DECISION_KINDS: Final = ("gate.", "stop.", "exemption.", "effect.resolved", "code_host.")
# Fields of bodies that hold the user name of a person, or a list of user names.
_NAME_FIELDS: Final = frozenset({"username", "on_behalf_of", "owner", "person", "user", "people"})
# Tables with such fields.
_NAMING_TABLES: Final = frozenset({"journal.Body", "approvals.PolicySet", "approvals.Gate"})


@dataclass(frozen=True, slots=True)
class Subject:
    """What a request erases, and what holds keep."""

    project: UUID | None = None  # None: every project
    words: tuple[str, ...] = ()  # for the database; empty if only digests remain
    matcher: Matcher | None = None
    session: UUID | None = None
    user: int | None = None
    pseudonym: str = ""
    username: str = ""
    keeps_decisions: bool = False
    held_sessions: frozenset[UUID] = frozenset()
    held_words: WordMatcher | None = None

    def matches_text(self, text: str) -> bool:
        """Return True if the text contains a word of the subject."""
        return self.matcher is not None and self.matcher.matches_text(text)


@dataclass(slots=True)
class Match:
    """A row that contains the subject: the columns to erase, or why it stays."""

    pk: Any
    values: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    is_kept: bool = False
    is_held: bool = False


@dataclass(slots=True)
class Window:
    """The matches of one window, and its last key; None after the last window."""

    matches: list[Match] = field(default_factory=list)
    last: Any = None


def load_subject(request: ErasureRequest) -> Subject:
    """Return what the request erases, with the holds in force now."""
    sessions, words = load_holds(request.project_id)
    user, pseudonym, username = None, "", ""
    own_words: list[str] = []
    if request.person is not None:
        user, username = request.person.pk, request.person.get_username()
        pseudonym = Person.objects.get(user=request.person.pk).pseudonym
        own_words = [] if username == pseudonym else list_person_words(request.person)
    sought = tuple(dict.fromkeys([*request.words, *own_words]))
    return Subject(
        project=request.project_id,
        words=sought,
        matcher=WordMatcher(sought) if sought else None,
        session=request.session_id,
        user=user,
        pseudonym=pseudonym,
        username=username,
        keeps_decisions=request.keeps_decisions,
        held_sessions=sessions,
        held_words=WordMatcher(words) if words else None,
    )


def load_holds(project: UUID | None) -> tuple[frozenset[UUID], list[str]]:
    """Return the held sessions and words, of one project or of all. Raises HoldNotRecorded."""
    return split_holds(load_recorded_holds(project))


def split_holds(rows: Sequence[LegalHold]) -> tuple[frozenset[UUID], list[str]]:
    """Return the sessions and the words that holds keep."""
    sessions = frozenset(hold.session_id for hold in rows if hold.session_id is not None)
    return sessions, [word for hold in rows for word in hold.words]


def list_person_words(user: Any) -> list[str]:
    """Return the words that name only this person: the mail address and the full name."""
    full_name = user.get_full_name().strip()
    return [word for word in (user.email, full_name if " " in full_name else "") if word]


def build_digest_subject(
    digests: Sequence[Mapping[str, Any]], *, project: UUID | None, session: UUID | None
) -> Subject:
    """Return a subject of which only the digests of its words remain, without holds."""
    matcher = DigestMatcher(digests, settings.GATEBOOK_PEPPER) if digests else None
    return Subject(project=project, matcher=matcher, session=session)


def find_window(table: TextTable, subject: Subject, after: Any) -> Window:
    """Return the matches among the next rows after the key `after`; None for the first."""
    keys = _rows_of(table, subject).order_by("pk")
    if after is not None:
        keys = keys.filter(pk__gt=after)
    last = next(iter(keys.values_list("pk", flat=True)[WINDOW_ROWS - 1 : WINDOW_ROWS]), None)
    rows = keys if last is None else keys.filter(pk__lte=last)
    return Window(_read_matches(table, subject, rows), last)


def find_matches(table: TextTable, subject: Subject, keys: Sequence[Any]) -> list[Match]:
    """Return which of these rows match, locked until the transaction ends.

    Bodies never change, and go only under the lock of `lock_words`. A lock on their rows needs the
    right UPDATE, which the application's role does not have (db/postgres/grants.py).
    """
    rows = table.model._base_manager.filter(pk__in=keys).order_by("pk")
    if table.label == "journal.Body":
        store.lock_words()
    else:
        list(rows.select_for_update(of=("self",)).values_list("pk", flat=True))
    return _read_matches(table, subject, rows)


def _rows_of(table: TextTable, subject: Subject) -> "QuerySet[Model]":
    rows: QuerySet[Model] = table.model._base_manager.all()
    if subject.project is not None and table.project:
        rows = rows.filter(**{table.project: subject.project})
    return rows


def _read_matches(table: TextTable, subject: Subject, rows: "QuerySet[Model]") -> list[Match]:
    names = [*table.erasable, *table.kept]
    if not names:
        return []
    condition = _build_condition(table, subject, names)
    if condition is None:
        return []
    more = [path for path in (table.session, table.author) if path]
    if table.label == "journal.Body":
        more.append("entry__kind")
    casts = {f"{name}_text": Cast(name, TextField()) for name in names if _needs_cast(table, name)}
    matched = rows.annotate(**casts).filter(condition)
    if table.label in _OF_HELD_SESSIONS and subject.held_sessions:
        is_of_held = _OF_HELD_SESSIONS[table.label](subject.held_sessions)
        matched = matched.annotate(**{_IS_OF_HELD: Exists(is_of_held)})
        more.append(_IS_OF_HELD)
    fields = dict.fromkeys(["pk", *names, *more, *casts])
    matches = []
    for values in matched.values(*fields):
        match = _compare_row(table, subject, values)
        if match is not None:
            matches.append(match)
    return matches


def _select_effects(sessions: frozenset[UUID]) -> "QuerySet[Effect]":
    return Effect.objects.filter(
        project=OuterRef("project"), opened_position=OuterRef("position"), session__in=sessions
    )


def _select_commands(sessions: frozenset[UUID]) -> "QuerySet[Entry]":
    return Entry.objects.filter(
        project=OuterRef("project"),
        source=OuterRef("source"),
        event_id=OuterRef("key"),
        session__in=sessions,
    )


def _select_plans(sessions: frozenset[UUID]) -> "QuerySet[UsedNamePlan]":
    held = Entry.objects.filter(position=OuterRef("position"), session__in=sessions)
    return UsedNamePlan.objects.filter(Exists(held), name=OuterRef("pk"))


# Tables without a column of the session: what a row of a held session has, as a query.
_OF_HELD_SESSIONS: Final[dict[str, Callable[[frozenset[UUID]], "QuerySet[Any]"]]] = {
    "api.StoredResponse": _select_commands,
    "investigation.EffectText": _select_effects,
    "ledger.UsedName": _select_plans,
}
_IS_OF_HELD: Final = "is_of_held_session"


def _needs_cast(table: TextTable, name: str) -> bool:
    column: Field[Any, Any] = table.model._meta.get_field(name)  # type: ignore[assignment]
    return isinstance(column, WordsField) or not isinstance(column, CharField | TextField)


def _build_condition(table: TextTable, subject: Subject, names: Sequence[str]) -> Q | None:
    """Return what narrows down the rows; None if none of the table can match."""
    if Treatment.LOGIN in table.columns.values() or _searches_without_words(subject):
        return Q(pk__isnull=False)
    condition = Q(pk__in=[])
    can_match = False
    sought = [*subject.words, *([subject.username] if table.label in _NAMING_TABLES else [])]
    spellings = [list_spellings(word) for word in sought if word]
    if Treatment.WORDS in table.columns.values():
        tokens = [tokenize(word) for word in subject.words]
        for name in names:
            for parts in filter(None, tokens):
                can_match = True
                condition |= _contains_all(f"{name}_text", [[part] for part in parts])
    else:
        for name in names:
            column = f"{name}_text" if _needs_cast(table, name) else name
            for runs in spellings:
                can_match = True
                condition |= _contains_all(column, runs)
    if subject.session is not None and table.session:
        can_match, condition = True, condition | Q(**{table.session: subject.session})
    if subject.session is not None and table.label == "api.StoredResponse":
        commands = _select_commands(frozenset((subject.session,)))
        can_match, condition = True, condition | Q(Exists(commands))
    author = _author_of(table, subject)
    if author is not None:
        can_match, condition = True, condition | Q(**{table.author: author})
    if table.sign_in_name and subject.username:
        counted = list_counted_names(subject.username)
        can_match, condition = True, condition | Q(**{f"{table.sign_in_name}__in": counted})
    return condition if can_match else None


def _searches_without_words(subject: Subject) -> bool:
    return subject.matcher is not None and not subject.words


def _contains_all(column: str, runs: Sequence[Sequence[str]]) -> Q:
    """Return the condition that the column contains a spelling of every run."""
    condition = Q()
    for spellings in runs:
        choice = Q()
        for spelling in spellings:
            choice |= Q(**{f"{column}__icontains": spelling})
        condition &= choice
    return condition


def _author_of(table: TextTable, subject: Subject) -> int | str | None:
    if not table.author or subject.user is None:
        return None
    return subject.user if table.author_is_user else subject.pseudonym


def _compare_row(table: TextTable, subject: Subject, values: Mapping[str, Any]) -> Match | None:
    """Return the match of one row, or None if it does not contain the subject."""
    kind = str(values.get("entry__kind", ""))
    if kind.startswith(_OWN_KINDS):
        return None
    is_whole, is_kept = _is_whole_match(table, subject, values, kind)
    columns = tuple(
        name
        for name in table.erasable
        if not is_erased_value(values[name])
        and (is_whole or _matches_column(table, subject, name, values))
    )
    is_kept = (is_kept and not columns) or any(
        _matches_column(table, subject, name, values) for name in table.kept
    )
    if not columns and not is_kept:
        return None
    is_held = bool(columns) and _is_held(table, subject, values)
    return Match(values["pk"], values, columns, is_kept, is_held)


def _is_whole_match(
    table: TextTable, subject: Subject, values: Mapping[str, Any], kind: str
) -> tuple[bool, bool]:
    """Return whether all texts of the row go, and whether they stay as a decision."""
    if subject.session is not None:
        if table.label == "api.StoredResponse":
            return True, False
        if table.session and _as_uuid(values[table.session]) == subject.session:
            return True, False
    if table.sign_in_name and subject.username:
        return values[table.sign_in_name] in list_counted_names(subject.username), False
    author = _author_of(table, subject)
    if author is None or values[table.author] != author:
        return False, False
    stays = subject.keeps_decisions and (
        kind.startswith(DECISION_KINDS) or table.label == "hooks.EventMatch"
    )
    return not stays, stays


def _as_uuid(value: Any) -> UUID | None:
    return value if value is None or isinstance(value, UUID) else UUID(str(value))


def _matches_column(
    table: TextTable, subject: Subject, name: str, values: Mapping[str, Any]
) -> bool:
    value = values[name]
    if value is None or is_erased_value(value):
        return False
    treatment = table.columns[name]
    if treatment is Treatment.LOGIN:
        return _matches_login(subject, str(value))
    if treatment is Treatment.WORDS:
        return _matches_tokens(subject.words, str(values.get(f"{name}_text", value)))
    if treatment in (Treatment.BODY, Treatment.JSON_TEXT) or name == "facts":
        value = parse_json_text(str(value))
    if table.label in _NAMING_TABLES and subject.username:
        if _names_user(value, subject.username):
            return True
        if values.get("entry__kind") == "gate.commented" and _mentions_user(value, subject):
            return True
    return matches_value(
        value if isinstance(value, dict | list) else str(value), subject.matches_text
    )


def parse_json_text(text: str) -> Any:
    """Return the value of a JSON text, or the text itself."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _names_user(value: Any, username: str) -> bool:
    if isinstance(value, dict):
        return any(
            (
                name in _NAME_FIELDS
                and any(
                    isinstance(each, str) and each.casefold() == username.casefold()
                    for each in (part if isinstance(part, list) else [part])
                )
            )
            or _names_user(part, username)
            for name, part in value.items()
        )
    return isinstance(value, list) and any(_names_user(part, username) for part in value)


def _mentions_user(value: Any, subject: Subject) -> bool:
    """Return True if a comment has the person's user name after @, as the comment's form reads."""
    text = value.get("text") if isinstance(value, dict) else None
    return isinstance(text, str) and subject.username in list_mentioned_names(text)


def _matches_login(subject: Subject, data: str) -> bool:
    content = SessionStore().decode(data)
    if subject.user is not None and str(content.get("_auth_user_id")) == str(subject.user):
        return True
    return matches_value(content, subject.matches_text)


def _matches_tokens(sought: Sequence[str], stored: str) -> bool:
    """Return True if stored words contain all parts of a sought one, in any order."""
    present = {part.strip("'")[TOKEN_DIGITS:] for part in stored.split()}
    return any(parts and present.issuperset(parts) for parts in (tokenize(word) for word in sought))


def is_erased_value(value: Any) -> bool:
    """Return True for an empty value, or what an erasure left."""
    if isinstance(value, str):
        return value in ("", ERASED) or value.startswith(f"{ERASED[:-1]} ")
    return value in (None, {}, [])


def _is_held(table: TextTable, subject: Subject, values: Mapping[str, Any]) -> bool:
    if table.session and _as_uuid(values[table.session]) in subject.held_sessions:
        return True
    if values.get(_IS_OF_HELD):
        return True
    held = subject.held_words
    if held is None:
        return False
    if Treatment.WORDS in table.columns.values():
        return any(_matches_tokens(held.words, str(values[f"{n}_text"])) for n in table.erasable)
    texts = (parse_json_text(str(values[n])) if n == "text" else values[n] for n in table.erasable)
    return any(matches_value(text, held.matches_text) for text in texts)
