"""The registry: every entity that can be asked for, its fields, flags and scopes. Nothing else names a column.

The parser's errors, the completion in the box, facets, the API's schema and docs/search.md are made from it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import CharField, Exists, F, Model, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Cast, Replace

from approvals import states as gate_states
from approvals.models import Exemption, Gate, Vote
from inquiry import handles, shown
from inquiry.indexes import (
    HAS_BAD_OUTCOME,
    HAS_GUARDED_REF,
    IS_BY_EXEMPTION,
    IS_OF_A_PERSON,
    IS_OF_A_RARE_KIND,
    IS_TRIED_AGAIN,
    NEEDS_LEAVE,
)
from inquiry.models import StuckTransition
from inquiry.query.fields import (
    Actor,
    Choice,
    Context,
    Field,
    Handle,
    Length,
    Name,
    Number,
    Own,
    Several,
    Test,
    Text,
    Time,
    any_of,
)
from journal.models import COMMON, LANES, Entry
from ledger import states
from ledger.models import Effect
from sessions.models import ENDED, MODES, REF_CLASSES, STATUSES, Membership, Person, Project, Session, Task


@dataclass(frozen=True, slots=True)
class Flag:
    """A word after `is:`."""

    name: str
    help: str
    test: Callable[[Context], Test]


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of row that can be asked for. `scopes` say which rows of another kind belong to one of its rows."""

    name: str
    plural: str
    help: str
    model: type[Model]
    time: str  # the name of the field that since, until and the histogram go by
    split: str  # the name of the field that a histogram stacks by
    fields: dict[str, Field]
    flags: dict[str, Flag]
    scopes: dict[str, Callable[["QuerySet[Any]"], tuple["QuerySet[Any]", str, str]]] = field(default_factory=dict)
    events: str = ""  # the column of a journal entry that holds its id, for sequences

    def rows(self) -> "QuerySet[Any]":
        """All rows, of every project, with what tests go by beside the columns."""
        rows: QuerySet[Any] = self.model._default_manager.all()
        if self.name == "exemption":  # its id as an effect's leave_ref holds it: 32 hexadecimal letters
            return rows.alias(hex=Replace(Cast("id", CharField()), Value("-"), Value("")))
        if self.name == "event":  # pages are cut by one name of the position, whatever the rows
            return rows.annotate(opened_position=F("position"))
        return rows

    def of(self, project: Project) -> "QuerySet[Any]":
        """The project's rows."""
        return self.rows().filter(project=project.id)

    def known(self, name: str) -> Field | None:
        """The field of that name or alias."""
        return self.fields.get(name) or next((one for one in self.fields.values() if name in one.aliases), None)


def _pairs(words: "tuple[str, ...] | Any") -> tuple[tuple[str, str], ...]:
    return tuple((word, word.replace("_", " ")) for word in words)


# Others, by their names. --------------------------------------------------------------------------------------------


def _agents(project: Project) -> "QuerySet[Any, Any]":
    return project.agents.order_by("name")


def _repositories(project: Project) -> "QuerySet[Any, Any]":
    return project.repositories.order_by("name")


def _people(project: Project) -> "QuerySet[Any, Any]":
    """Members, and who was one and voted."""
    member = Membership.objects.filter(project=project, user=OuterRef("pk"))
    voter = Vote.objects.filter(project=project, user=OuterRef("pk"))
    return get_user_model().objects.filter(Exists(member) | Exists(voter)).order_by("username")


def _session_id(project: Project, text: str) -> UUID | None:
    found = handles.session(project, text)
    return None if found is None else found.id


def _effect_id(project: Project, text: str) -> UUID | None:
    return _by_handle(project, Effect, "e", text)


def _gate_id(project: Project, text: str) -> UUID | None:
    return _by_handle(project, Gate, "g", text)


def _task_id(project: Project, text: str) -> UUID | None:
    return _by_handle(project, Task, "t", text)


def _by_handle(project: Project, model: Any, letter: str, text: str) -> UUID | None:
    rows = model.objects.filter(project=project)
    found, shaped = handles.handle(text), handles.as_uuid(text)
    if found is not None and found[0] == letter:
        rows = rows.filter(opened_position=found[1])
    elif shaped is not None:
        rows = rows.filter(id=shaped)
    else:
        return None
    ids: list[UUID] = list(rows.values_list("id", flat=True)[:1])
    return ids[0] if ids else None


def _agent(index: str = "", path: str = "agent_id", shows: str = "agent__name") -> Name:
    return Name("agent", "Agent", path=path, shows=shows, known=_agents, called="an agent", index=index, facet=True)


def _repository(index: str = "", **more: Any) -> Name:
    return Name(
        *("repository", "Repository"),
        path="repository_id",
        shows="repository__name",
        known=_repositories,
        called="a repository",
        aliases=("repo",),
        index=index,
        facet=True,
        **more,
    )


def _person(name: str, label: str, path: str, help: str = "", aliases: tuple[str, ...] = ()) -> Name:  # noqa: A002
    shows = f"{path.removesuffix('_id')}__username"
    return Name(
        *(name, label, help),
        path=path,
        shows=shows,
        known=_people,
        column="username",
        called="a person",
        aliases=aliases,
    )


def _session(index: str, *, nullable: bool = False, path: str = "session_id") -> Handle:
    return Handle(
        *("session", "Session", "s_41, id or key"),
        path=path,
        find=_session_id,
        called="a session",
        index=index,
        walled=True,
        nullable=nullable,
    )


# Tests of their own. ------------------------------------------------------------------------------------------------


def _effect_state(state: str, context: Context) -> Test:
    arms, now_us = tuple(shown.arms(state, context.now_us)), context.now_us
    word = shown.STATES[state]
    return Test(shown.any_of(list(arms)), lambda row: shown.shown_state(row, now_us) == word, arms)


def _session_status(status: str, _context: Context) -> Test:
    if status == "no_end_told":
        return Test(shown.no_end_told(), lambda row: shown.shown_status(row) == shown.NO_END)
    q = Q(status=status)
    if status == "running":
        q &= ~Q(mode="reported")
    return Test(q, lambda row: shown.shown_status(row) == status)


def _judged(word: str, _context: Context) -> Test:
    if word == "not_held":
        return Test(Q(NEEDS_LEAVE, enforced=False), lambda row: row.judged in ("ask", "deny") and not row.enforced)
    q = Q(judged=word) if word == "allow" else Q(NEEDS_LEAVE, judged=word)
    return Test(q, lambda row: row.judged == word)


_RULINGS: Final = {
    "approved": gate_states.GIVEN,
    "denied": ("denied", "denied_final"),
    "returned": ("returned",),
    "none": ("pending", "expired", "cancelled"),
}


def _ruling(word: str, _context: Context) -> Test:
    statuses = _RULINGS[word]
    return Test(Q(status__in=statuses), lambda row: row.status in statuses)


def _stuck(rule: "str | None", column: str = "subject") -> Callable[[Context], Test]:
    def test(context: Context) -> Test:
        raised = StuckTransition.objects.filter(
            project=context.project, raised_us__isnull=False, cleared_us__isnull=True
        )
        raised = raised.filter(rule=rule) if rule else raised.filter(session__isnull=False)
        return Test(Q(pk__in=raised.order_by().values(column)), indexed=True)

    return test


def _named_by_entries(column: str, **entries: Any) -> Callable[[Context], Test]:
    def test(context: Context) -> Test:
        found = Entry.objects.filter(project=context.project.id, **{f"{column}__isnull": False}, **entries)
        found = found.filter(IS_OF_A_RARE_KIND) if "kind" in entries else found
        return Test(Q(pk__in=found.order_by().values(column)))

    return test


def _sessions_of(q: Q) -> Callable[[Context], Test]:
    """Sessions one of whose effects meets `q`, for which there is an index."""

    def test(context: Context) -> Test:
        found = Effect.objects.filter(q, project=context.project)
        return Test(Q(pk__in=found.order_by().values("session")))

    return test


def _simple(q: Q, holds: Callable[[Any], bool], *, indexed: bool = False) -> Callable[[Context], Test]:
    return lambda _context: Test(q, holds, indexed=indexed)


def _unknown_effects(context: Context) -> Test:
    test = _effect_state(shown.UNKNOWN, context)
    return Test(test.q, test.holds, test.arms, indexed=True)


def _sessions_with_unknown(context: Context) -> Test:
    tests = []
    for arm in shown.arms(shown.UNKNOWN, context.now_us):
        found = Effect.objects.filter(arm, project=context.project)
        tests.append(Test(Q(pk__in=found.order_by().values("session"))))
    return any_of(tests)


def _exemption_is(live: bool) -> Callable[[Context], Test]:
    def test(context: Context) -> Test:
        now = context.now_us
        q = Q(revoked_at_us__isnull=True, ends_at_us__gt=now)
        return Test(
            q if live else ~q,
            lambda row: (row.revoked_at_us is None and row.ends_at_us > now) is live,
        )

    return test


# Rows that belong to others. ----------------------------------------------------------------------------------------


def _votes(project: Project) -> "QuerySet[Any]":
    return Vote.objects.filter(project=project) if project is not None else Vote.objects.all()


def _gates(project: Project) -> "QuerySet[Any]":
    return Gate.objects.filter(project=project) if project is not None else Gate.objects.all()


def _given_gates(project: Project) -> "QuerySet[Any]":
    return _gates(project).filter(status__in=gate_states.GIVEN)


def _failed(project: Project) -> "QuerySet[Any]":
    rows = Effect.objects.filter(state="failed")
    return rows.filter(project=project) if project is not None else rows


def _all(*fields: Field) -> dict[str, Field]:
    return {one.name: one for one in fields}


def _flags(*flags: Flag) -> dict[str, Flag]:
    return {one.name: one for one in flags}


def _reviewer(link: str, grouped: str, **more: Any) -> Several:
    return Several(
        *("reviewer", "Reviewer", "who answered it"),
        rows=_votes,
        link=link,
        grouped=grouped,
        inner=_person("reviewer", "Reviewer", "user_id"),
        facet=True,
        **more,
    )


EFFECT: Final = Entity(
    "effect",
    "effects",
    "one externally visible action",
    Effect,
    "at",
    "state",
    _all(
        Own(
            *("state", "State", "as shown on every page"),
            choices=tuple(shown.STATES.items()),
            path="state",
            each=_effect_state,
            index="effect_by_state",
            common=("acknowledged",),
            facet=True,
        ),
        Choice(
            *("outcome", "Outcome"),
            path="outcome",
            choices=_pairs(states.SAID_OUTCOMES),
            narrow={word: Q(HAS_BAD_OUTCOME) for word in ("error", "unknown")},
            index="effect_by_bad_outcome",
            common=("ok",),
            facet=True,
        ),
        Text("tool", "Tool", "its whole name, or its beginning and *", path="tool", index="effect_by_tool", facet=True),
        _agent(),
        _session("effect_by_session"),
        _repository("effect_by_repository"),
        Text("ref", "Ref", "branch or tag", path="ref"),
        Choice(
            *("ref_class", "Ref class", "stamped at arrival, by the repository's patterns"),
            path="ref_class",
            choices=_pairs(REF_CLASSES),
            narrow={word: Q(HAS_GUARDED_REF) for word in ("production", "protected")},
            index="effect_by_ref_class",
            common=("other",),
            facet=True,
        ),
        Text("environment", "Environment", "in the agent's words", path="environment", aliases=("env",), facet=True),
        Text("resource", "Resource", path="resource", index="effect_by_resource"),
        Text(
            *("reference", "External reference", "pull request, commit, message id"),
            path="external_reference",
            index="effect_by_reference",
        ),
        Choice("leave", "Leave", path="leave", choices=_pairs(states.LEAVES), facet=True),
        Choice("basis", "Basis of leave", path="leave_basis", choices=_pairs(x for x in states.BASES if x)),
        Own(
            *("judged", "Judged by policy"),
            path="judged",
            choices=(
                ("ask", "asks for leave"),
                ("deny", "denied"),
                ("not_held", "would have been held"),
                ("allow", "allowed"),
            ),
            each=_judged,
            index="effect_judged_to_need_leave",
            common=("allow",),
        ),
        Text("rule", "Policy rule", "set@version/rule", path="judged_by", aliases=("policy",), facet=True),
        Text("key", "Effect key", "its idempotency key", path="effect_key"),
        Text("intent", "Intent digest", "v1:… in full", path="intent_digest"),
        Several(
            *("approved_intent", "Approved intent", "the digest that people gave leave for"),
            rows=_given_gates,
            link="effect_id",
            inner=Text("approved_intent", "Approved intent", path="intent_digest"),
        ),
        Choice("reason", "Why it failed", path="failure_reason", choices=_pairs(x for x in states.REASONS if x)),
        Choice(
            *("resolution", "Resolution", "what a person said of it"),
            path="resolution",
            choices=_pairs(x for x in states.RESOLUTIONS if x),
        ),
        Choice("lane", "Lane", path="lane", choices=(("command", "command"), ("evidence", "evidence"))),
        Number(
            *("attempts", "Attempts"),
            path="attempt_count",
            nullable=False,
            index="effect_tried_again",
            few_above=1,
            few=Q(IS_TRIED_AGAIN),
        ),
        Text("call", "Call id", path="call_id"),
        Text("turn", "Turn", path="turn"),
        Handle("task", "Task", "t_7 or id", path="task_id", find=_task_id, called="a task", nullable=True),
        Handle(
            *("id", "Effect", "e_12 or id"),
            path="id",
            find=_effect_id,
            called="an effect",
            index="primary key",
            walled=True,
            aliases=("effect",),
        ),
        Handle(
            *("compensates", "Compensates", "e_12 or id"),
            path="compensates_id",
            find=_effect_id,
            called="an effect",
            index="effect_by_compensated",
            nullable=True,
        ),
        Handle(
            "parent",
            "Parent effect",
            "e_12 or id",
            path="parent_effect_id",
            find=_effect_id,
            called="an effect",
            nullable=True,
        ),
        _person("on_behalf_of", "On behalf of", "session__on_behalf_of_id", "a user name, as the agent said"),
        _reviewer("gate__effect", "gates__votes__user__username"),
        Several(
            *("ruling", "Ruling", "of its gates"),
            rows=_gates,
            link="effect_id",
            grouped="gates__status",
            inner=Own("ruling", "Ruling", choices=_pairs(_RULINGS), path="status", each=_ruling),
        ),
        Several(
            *("wait", "Waited for people", "from the request to the ruling"),
            rows=_gates,
            link="effect_id",
            inner=Length("wait", "Waited", path="decided_at_us", minus="requested_at_us"),
        ),
        Time("at", "First heard of", "server's clock", path="received_us", nullable=False),
        Time("changed_at", "Last changed", "server's clock", path="changed_us", nullable=False),
        Time("planned_at", "Planned", "producer's clock where it told one", path="planned_at_us"),
        Time("dispatched_at", "Dispatched", "producer's clock where it told one", path="dispatched_at_us"),
        Time("settled_at", "Settled", "producer's clock where it told one", path="settled_at_us"),
        Time("deadline", "Deadline", "past it a dispatch is shown as unknown", path="deadline_us"),
        Length("took", "Took", "from dispatch to answer", path="settled_at_us", minus="dispatched_at_us"),
    ),
    _flags(
        Flag("unknown", "nobody can say whether it happened", _unknown_effects),
        Flag("waiting", "it waits for people", lambda context: _effect_state(shown.AWAITING, context)),
        Flag("stuck", "the watch raised it", _stuck("S4")),
        Flag("fenced", "a worker without its lease spoke of it", _named_by_entries("effect", kind="integrity.fenced")),
        Flag("erased", "a body of it was erased", _named_by_entries("effect", erasure__isnull=False)),
        Flag(
            "violating",
            "an integrity violation names it",
            _simple(Q(violates=True), lambda row: row.violates, indexed=True),
        ),
    ),
    {
        "session": lambda rows: (rows, "id", "session_id"),
        "gate": lambda rows: (rows, "effect_id", "id"),
        "event": lambda rows: (rows.filter(effect__isnull=False), "effect", "id"),
    },
    "effect",
)

SESSION: Final = Entity(
    "session",
    "sessions",
    "a long-lived execution",
    Session,
    "at",
    "status",
    _all(
        Own(
            *("status", "Status", "as shown on every page"),
            path="status",
            choices=(*_pairs(STATUSES), ("no_end_told", shown.NO_END)),
            each=_session_status,
            aliases=("state",),
            facet=True,
        ),
        Choice("mode", "Mode", path="mode", choices=_pairs(MODES), facet=True),
        _agent(),
        _repository(),
        Text("branch", "Branch", path="branch"),
        Text("key", "Key", path="key"),
        Text("title", "Title", "the agent's words, whole or a beginning and *", path="title"),
        Text("waiting_on", "Waiting on", "the agent's words", path="waiting_on"),
        _person("owner", "Owner", "owner_id"),
        _person("on_behalf_of", "On behalf of", "on_behalf_of_id", "as the agent said"),
        Handle(
            *("id", "Session", "s_41, id or key"),
            path="id",
            find=_session_id,
            called="a session",
            index="primary key",
            walled=True,
            aliases=("session",),
        ),
        Handle(
            "parent",
            "Parent session",
            "s_41, id or key",
            path="parent_id",
            find=_session_id,
            called="a session",
            nullable=True,
        ),
        Handle(
            "branched_from",
            "Branched from",
            "s_41, id or key",
            path="branched_from_id",
            find=_session_id,
            called="a session",
            nullable=True,
        ),
        Several(
            *("failing_tool", "Tool that failed", "of one of its effects that failed"),
            rows=_failed,
            link="session_id",
            inner=Text("failing_tool", "Tool", path="tool"),
        ),
        Number("resumes", "Resumes", "how often another worker took it over", path="resumes", nullable=False),
        Number("effects", "Effects", path="effect_count", nullable=False),
        Time("at", "Opened", "server's clock", path="created_at_us", nullable=False),
        Time("seen_at", "Last heard of", "server's clock", path="seen_at_us", nullable=False),
        Time("started_at", "Started", "producer's clock", path="started_at_us"),
        Time("ended_at", "Ended", "producer's clock", path="ended_at_us"),
        Length("took", "Took", "from start to end, by the producer's clock", path="ended_at_us", minus="started_at_us"),
    ),
    _flags(
        Flag("stuck", "the watch raised it", _stuck(None, "session")),
        Flag("waiting", "it says that it waits", _simple(Q(status="waiting"), lambda row: row.status == "waiting")),
        Flag("unknown", "of one of its effects nobody can say whether it happened", _sessions_with_unknown),
        Flag("fenced", "a worker without its lease spoke", _named_by_entries("session", kind="integrity.fenced")),
        Flag("erased", "a body of it was erased", _named_by_entries("session", erasure__isnull=False)),
        Flag("violating", "an integrity violation names one of its effects", _sessions_of(Q(violates=True))),
        Flag(
            "ended",
            "it completed, failed or was cancelled",
            _simple(Q(status__in=ENDED), lambda row: row.status in ENDED),
        ),
    ),
    {
        "effect": lambda rows: (rows, "session_id", "id"),
        "gate": lambda rows: (rows, "session_id", "id"),
        "exemption": lambda rows: (rows.filter(session__isnull=False), "session_id", "id"),
        "event": lambda rows: (rows.filter(session__isnull=False), "session", "id"),
    },
    "session",
)

GATE: Final = Entity(
    "gate",
    "gates",
    "one effect held for people",
    Gate,
    "at",
    "status",
    _all(
        Choice(
            "status",
            "Status",
            path="status",
            choices=_pairs(gate_states.STATUSES),
            index="gate_open",
            common=gate_states.ENDS,
            aliases=("state",),
            facet=True,
        ),
        Own("ruling", "Ruling", path="status", choices=_pairs(_RULINGS), each=_ruling),
        Choice("reason", "Why it ended", path="reason", choices=_pairs(x for x in gate_states.REASONS if x)),
        Choice("risk", "Risk", path="risk", choices=_pairs(gate_states.RISKS), facet=True),
        Choice("reversibility", "Reversibility", path="reversibility", choices=_pairs(states.REVERSIBILITIES)),
        Text("tool", "Tool", path="tool", index="gate_by_target", facet=True),
        _agent("gate_by_agent"),
        Text("repository", "Repository", path="repository_name", aliases=("repo",), facet=True),
        Text("rule", "Policy rule", path="rule", aliases=("policy",), facet=True),
        _session("gate_by_session"),
        Handle(
            *("effect", "Effect", "e_12 or id"),
            path="effect_id",
            find=_effect_id,
            called="an effect",
            index="effect",
            walled=True,
        ),
        Handle(
            *("id", "Gate", "g_12 or id"),
            path="id",
            find=_gate_id,
            called="a gate",
            index="primary key",
            walled=True,
            aliases=("gate",),
        ),
        Text("intent", "Intent digest", "what leave is for", path="intent_digest"),
        Text("digest", "Digest", "over all that leave is for", path="digest"),
        _person("requester", "Requester", "requester_id"),
        _person("session_owner", "Owner of the session", "session_owner_id"),
        _person("agent_owner", "Owner of the agent", "agent_owner_id"),
        _reviewer("gate_id", "votes__user__username"),
        Several(
            *("ruled_in", "Answered within", "from the page shown to the answer, of one of the people"),
            rows=_votes,
            link="gate_id",
            inner=Length("ruled_in", "Answered within", path="voted_at_us", minus="shown_at_us", nullable=False),
        ),
        Number("minimum", "People needed", path="minimum", nullable=False),
        Time("at", "Requested", "server's clock", path="requested_at_us", nullable=False),
        Time("decide_by", "Decide by", path="decide_by_us", nullable=False),
        Time("decided_at", "Decided", path="decided_at_us", index="gate_by_decision"),
        Time("used_at", "Leave used", path="used_at_us"),
        Time("leave_until", "Leave until", path="leave_until_us"),
        Time("ended_at", "Ended", path="ended_at_us"),
        Length("wait", "Waited", "from the request to the ruling", path="decided_at_us", minus="requested_at_us"),
    ),
    _flags(
        Flag(
            "open",
            "nobody has ruled, or leave was not used yet",
            _simple(Q(status__in=gate_states.OPEN), lambda row: row.status in gate_states.OPEN, indexed=True),
        ),
        Flag(
            "waiting",
            "it waits for people",
            _simple(Q(status="pending"), lambda row: row.status == "pending", indexed=True),
        ),
        Flag("stuck", "the watch raised it", _stuck("S6")),
        Flag(
            "violating",
            "its effect ran without leave",
            _simple(Q(reason="bypassed"), lambda row: row.reason == "bypassed"),
        ),
        Flag(
            "erased",
            "a body of its effect was erased",
            lambda context: Test(
                Q(
                    effect__in=Entry.objects.filter(
                        project=context.project.id, effect__isnull=False, erasure__isnull=False
                    )
                    .order_by()
                    .values("effect")
                )
            ),
        ),
    ),
    {
        "effect": lambda rows: (rows, "id", "effect_id"),
        "session": lambda rows: (rows, "id", "session_id"),
        "event": lambda rows: (rows.filter(effect__isnull=False), "effect", "effect_id"),
    },
)


def _uses(project: Project) -> "QuerySet[Any]":
    rows = Effect.objects.filter(IS_BY_EXEMPTION)
    return rows.filter(project=project) if project is not None else rows


EXEMPTION: Final = Entity(
    "exemption",
    "exemptions",
    "a time-boxed, reasoned suspension of a policy",
    Exemption,
    "granted",
    "rule",
    _all(
        Text("tool", "Tool", "the glob as it was granted", path="tool", facet=True),
        Text("rule", "Rule", "the glob as it was granted", path="rule", aliases=("policy",), facet=True),
        Text("agent", "Agent", "the glob as it was granted", path="agent", facet=True),
        Text("repository", "Repository", "the glob as it was granted", path="repository", aliases=("repo",)),
        Text("ref", "Ref", "the glob as it was granted", path="ref"),
        Text("environment", "Environment", "the glob as it was granted", path="environment", aliases=("env",)),
        _session("", nullable=True),
        Name(
            "granter",
            "Granted by",
            path="granted_by_id",
            shows="granted_by__username",
            known=_people,
            column="username",
            called="a person",
            facet=True,
        ),
        Time("granted", "Granted", path="granted_at_us", nullable=False, aliases=("at",)),
        Time("expires", "Ends", path="ends_at_us", nullable=False),
        Time("revoked", "Revoked", path="revoked_at_us"),
        Several(
            *("used", "Used", "when an effect ran or was let through under it"),
            rows=_uses,
            link="leave_ref",
            to="hex",
            inner=Time("used", "Used", path="dispatched_at_us"),
        ),
        Time("last_use", "Last use on record", path="used_at_us"),
        Number("uses", "Uses", path="uses", nullable=False),
    ),
    _flags(
        Flag("live", "it counts now", _exemption_is(True)),
        Flag("ended", "its time is over, or it was revoked", _exemption_is(False)),
    ),
    {"session": lambda rows: (rows, "id", "session_id")},
)


def _actors(project: Project, name: str) -> list[str]:
    """What the journal calls whom people call `name`; as it stands where nobody here is called so."""
    people = Person.objects.filter(user__in=_people(project).filter(username=name)).values_list("pseudonym", flat=True)
    agents = [f"agent:{pk.hex}" for pk in _agents(project).filter(name=name).values_list("id", flat=True)]
    return [*people, *agents] or [name]


EVENT: Final = Entity(
    "event",
    "events",
    "one fact in the journal",
    Entry,
    "at",
    "kind",
    _all(
        Text(
            *("kind", "Kind", "subject.verb"),
            path="kind",
            index="entry_by_kind",
            common=COMMON,
            few=Q(IS_OF_A_RARE_KIND),
            facet=True,
        ),
        Text("source", "Source", path="source", facet=True),
        Actor(
            *("actor", "Actor", "a user name, an agent's name, or gatebook"),
            path="actor",
            index="entry_by_person",
            few=Q(IS_OF_A_PERSON),
            actors=_actors,
            facet=True,
        ),
        Choice("lane", "Lane", path="lane", choices=_pairs(LANES), facet=True),
        _session("entry_by_session", nullable=True, path="session"),
        Handle(
            *("effect", "Effect", "e_12 or id"),
            path="effect",
            find=_effect_id,
            called="an effect",
            index="entry_by_effect",
            nullable=True,
            walled=True,
        ),
        Number("position", "Position", path="position", nullable=False, index="primary key"),
        Number("attempt", "Attempt", path="attempt"),
        Number("epoch", "Lease epoch", path="lease_epoch"),
        Text("entry_id", "Entry id", "made by the client", path="event_id"),
        Time("at", "Received", "server's clock", path="received_us", nullable=False),
        Time("occurred_at", "Occurred", "producer's clock", path="occurred_us"),
    ),
    _flags(
        Flag("erased", "its body was erased", lambda _context: Test(Q(erasure__isnull=False))),
        Flag(
            "fenced",
            "a worker without its lease spoke",
            _simple(
                Q(IS_OF_A_RARE_KIND, kind="integrity.fenced"), lambda row: row.kind == "integrity.fenced", indexed=True
            ),
        ),
        Flag(
            "violating",
            "an integrity violation",
            _simple(
                Q(IS_OF_A_RARE_KIND, kind="integrity.violation"),
                lambda row: row.kind == "integrity.violation",
                indexed=True,
            ),
        ),
    ),
    {
        "effect": lambda rows: (rows, "id", "effect"),
        "session": lambda rows: (rows, "id", "session"),
    },
    "",
)

ENTITIES: Final[dict[str, Entity]] = {one.name: one for one in (EFFECT, SESSION, GATE, EXEMPTION, EVENT)}
NAMES: Final = tuple(ENTITIES)
DEFAULT: Final = "effect"
