"""What is wrong now: one row per kind, with its number, newest case and one safe act."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import (
    BigIntegerField,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
)
from django.db.models.functions import Cast, Coalesce
from django.urls import reverse

from accounts.access import has_role
from accounts.models import Membership, Person
from db import raw_sql
from db.clock import now_us
from db.jobs import JobState
from display.display_state import UNKNOWN, shown_state_conditions
from display.urls_of_rows import build_search_url
from investigation.alerts.alerts import RAISED
from investigation.models import Alert, SavedQuery
from journal.models import Entry
from ledger import violations
from ledger.models import Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from monitoring import stuck_counts
from monitoring.stuck.rule_names import RULES
from notifications import notifications
from notifications.models import Notification
from pages.overview.costly_loops import CostlyLoop, load_costly_loops
from pages.overview.day_counts import DAY_US, format_minute

MAX_COUNT: Final = 10_000  # as the search counts
MAX_SHOWN: Final = 4  # kinds; more would not fit on one screen, and are folded
MINUTE_US: Final = 60_000_000


class NewestCase(NamedTuple):
    """The newest case of a kind: an effect, session or saved query."""

    id: UUID
    position: int
    name: str
    who: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of problem that exists now. `act` and `act_url` are empty without the right to act."""

    kind: str
    title: str
    style: str
    shape: str
    count: int
    url: str
    case: NewestCase | None = None
    case_url: str = ""
    words: str = ""
    act: str = ""
    act_url: str = ""

    @property
    def is_more(self) -> bool:
        """Whether there are more than were counted."""
        return self.count > MAX_COUNT

    @property
    def shown_count(self) -> int:
        """The number as the search counts it."""
        return min(self.count, MAX_COUNT)


@dataclass(slots=True)
class Faults:
    """Everything that is wrong now, the worst kind first."""

    rows: list[Fault]
    acknowledged: int = 0
    acknowledged_url: str = ""
    acknowledged_by: str = ""  # of the latest
    loops: tuple[CostlyLoop, ...] = ()

    @property
    def shown(self) -> list[Fault]:
        """The worst kinds; one more than MAX_SHOWN is shown too."""
        return self.rows if len(self.rows) == MAX_SHOWN + 1 else self.rows[:MAX_SHOWN]

    @property
    def folded(self) -> list[Fault]:
        """The kinds that are not shown at first."""
        return self.rows[len(self.shown) :]

    @property
    def count(self) -> int:
        """The number of problems."""
        return sum(row.shown_count for row in self.rows)


def load_faults(membership: Membership, jobs: Iterable[JobState], now: int) -> Faults:
    """Load what is wrong in the project of a member. Two queries."""
    project = membership.project_id
    since = now - now % DAY_US - 6 * DAY_US
    day_ago = now - now % MINUTE_US - DAY_US
    rows = _fetch_union(
        {
            "violation": _newest_effects(violations.query_unacknowledged(project)),
            **{
                f"unknown {number}": _newest_effects(
                    Effect.objects.filter(condition, project=project)
                )
                for number, condition in enumerate(shown_state_conditions(UNKNOWN, now))
            },
            "stalled": _newest_sessions(project, now),
            "alerts": _stopped_alerts(membership),
            "raised": _raised_alerts(membership, day_ago),
            "acknowledged": _acknowledgements(project, since),
            "notifications": _failed_notifications(project),
        }
    )
    counts: dict[str, int] = {}
    cases: dict[str, NewestCase] = {}
    for kind, count, *columns in rows:
        name = kind.partition(" ")[0]
        case = NewestCase(raw_sql.read_uuid(columns[0]), *columns[1:])
        counts[name] = counts.get(name, 0) + count
        if name not in cases or case.position > cases[name].position:
            cases[name] = case
    listed = [
        *_list_faults(membership, counts, cases, day_ago),
        *_list_jobs(jobs),
    ]
    if counts.get("notifications") and has_role(membership, "administrator"):
        case = cases["notifications"]
        listed.append(
            Fault(
                "notifications",
                "Notifications not delivered",
                "is-planned",
                "superseded",
                counts["notifications"],
                reverse("notifications"),
                words=f"of the latest 30, last to {case.name}: {case.who or 'no answer'}",
                act="Open channels",
                act_url=reverse("notifications"),
            )
        )
    acknowledged = cases.get("acknowledged")
    return Faults(
        listed,
        counts.get("acknowledged", 0),
        build_search_url(f"event kind:{violations.ACKNOWLEDGED_KIND} since:{format_minute(since)}"),
        acknowledged.who if acknowledged else "",
        load_costly_loops(project, since),
    )


def _list_faults(
    membership: Membership, counts: dict[str, int], cases: dict[str, NewestCase], day_ago: int
) -> Iterable[Fault]:
    """Yield the kinds that a query counts, the worst first."""
    may_review, may_operate = has_role(membership, "reviewer"), has_role(membership, "operator")
    if case := cases.get("violation"):
        yield Fault(
            "violation",
            "Ran without permission",
            "is-danger",
            "warn",
            counts["violation"],
            build_search_url("is:unacknowledged"),
            case,
            reverse("effect", args=[case.id]),
            act="Acknowledge" if may_review else "",
            act_url=reverse("acknowledge_violations"),
        )
    if case := cases.get("unknown"):
        yield Fault(
            "unknown",
            "Outcome unknown",
            "is-unknown",
            "unknown",
            counts["unknown"],
            build_search_url("is:unknown"),
            case,
            reverse("effect", args=[case.id]),
            act="Resolve" if may_operate else "",
            act_url=reverse("resolve", args=[case.id]),
        )
    if case := cases.get("stalled"):
        yield Fault(
            "stalled",
            "Session stuck" if counts["stalled"] == 1 else "Sessions stuck",
            "is-failed",
            "pause",
            counts["stalled"],
            build_search_url("session is:stalled"),
            case._replace(name=f"s_{case.position}"),
            reverse("session", args=[case.id]),
            words=RULES[case.name].partition(":")[0].lower(),
            act="Open board" if may_review else "",
            act_url=reverse("stuck"),
        )
    if case := cases.get("raised"):
        yield Fault(
            "raised",
            "Alert in 24 hours" if counts["raised"] == 1 else "Alerts in 24 hours",
            "is-awaiting",
            "warn",
            counts["raised"],
            build_search_url(f"event kind:{RAISED} since:{format_minute(day_ago)}"),
            case,
            reverse("saved_query", args=[case.id]) if case.name else "",
            words="" if case.name else "of another member's query",
        )
    if case := cases.get("alerts"):
        yield Fault(
            "alerts",
            "Alerts stopped",
            "is-awaiting",
            "hours",
            counts["alerts"],
            reverse("saved_queries"),
            case,
            reverse("saved_query", args=[case.id]),
            words=case.who,
            act="Open query",
            act_url=reverse("saved_query", args=[case.id]),
        )


def _list_jobs(jobs: Iterable[JobState]) -> Iterable[Fault]:
    """Yield late or failing jobs; a late seal has a kind of its own."""
    late = [job for job in jobs if job.ago_us is not None and job.in_trouble]
    for kind, title, url, listed in (
        ("seal", "Seal is behind", reverse("proofs"), [j for j in late if j.name == "seal"]),
        ("jobs", "Job late", "/readyz", [j for j in late if j.name != "seal"]),
    ):
        if listed:
            first = listed[0]
            state = "fails with " + first.error if first.error else "is silent"
            if first.is_beyond:
                state = "claims to have read beyond the journal's end"
            words = f"{first.word}: {state}"
            yield Fault(
                kind,
                title if len(listed) == 1 else "Jobs late",
                "is-awaiting",
                "hours",
                len(listed),
                url,
                words=words,
                case=NewestCase(UUID(int=0), 0, "", "", now_us() - (first.ago_us or 0)),
            )


class _Cases(NamedTuple):
    """The rows of a kind, and the same with the columns of a NewestCase."""

    rows: "QuerySet[Any]"
    newest: "QuerySet[Any]"


def _fetch_union(parts: dict[str, _Cases]) -> list[Any]:
    """Return the newest row of each part with its count. One query.

    The parts have the same columns. Django does not combine them on SQLite, where a part may have
    no order and limit of its own.
    """
    texts, parameters = [], []
    for kind, (rows, newest) in parts.items():
        # Counted without those columns, whose joins would fetch every row.
        counted = rows.order_by().values(one=Value(1))[: MAX_COUNT + 1]
        count_sql, count_values = counted.query.sql_with_params()
        newest_sql, newest_values = newest[:1].query.sql_with_params()
        texts.append(
            f"SELECT '{kind}' AS kind, (SELECT count(*) FROM ({count_sql}) AS counted), newest.*"
            f" FROM ({newest_sql}) AS newest"
        )
        parameters += [*count_values, *newest_values]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(texts), parameters)
        fetched: list[Any] = cursor.fetchall()
    return fetched


def _select_columns(rows: "QuerySet[Any]", **columns: Any) -> _Cases:
    """Select the columns of a NewestCase."""
    typed = {
        "case_id": columns["id"],
        "case_position": Cast(columns["position"], BigIntegerField()),
        "case_name": Cast(columns["name"], TextField()),
        "case_who": Cast(columns["who"], TextField()),
        "case_at": Cast(columns["at_us"], BigIntegerField()),
    }
    return _Cases(rows, rows.annotate(**typed).values_list(*typed))


def _newest_effects(rows: "QuerySet[Effect]") -> _Cases:
    return _select_columns(
        rows.order_by("-opened_position"),
        id=F("id"),
        position=F("opened_position"),
        name=F("tool"),
        who=F("agent__name"),
        at_us=Coalesce("dispatched_at_us", "received_us"),  # when it ran, if that is known
    )


def _newest_sessions(project: UUID, now: int) -> _Cases:
    """Return the stalled sessions, each by its newest episode."""
    episodes = stuck_counts.query_stalled_episodes(project, now)
    newer = episodes.filter(session=OuterRef("session"), id__gt=OuterRef("id"))
    return _select_columns(
        episodes.filter(~Exists(newer)).order_by("-raised_position"),
        id=F("session"),
        position=F("session__opened_position"),
        name=F("rule"),
        who=F("session__agent__name"),
        at_us=F("since_us"),
    )


def _stopped_alerts(membership: Membership) -> _Cases:
    """Return the alerts that Gatebook stopped, of queries that this person may open."""
    rows = Alert.objects.filter(project=membership.project_id, stopped_at_us__isnull=False)
    visible = Q(query__owner=membership.user_id) | Q(query__shared=True)
    return _select_columns(
        rows.filter(visible).order_by("-stopped_at_us"),
        id=F("query"),
        position=F("place"),
        name=F("query__name"),
        who=F("stopped_because"),
        at_us=F("stopped_at_us"),
    )


def _raised_alerts(membership: Membership, since: int) -> _Cases:
    """Return what alerts reported. A query that this person may not open has no name."""
    rows = Entry.objects.filter(
        IS_OF_A_RARE_KIND, project=membership.project_id, kind=RAISED, received_us__gte=since
    )
    visible = Q(owner=membership.user_id) | Q(shared=True)
    name = SavedQuery.objects.filter(visible, id=OuterRef("subject")).values("name")
    return _select_columns(
        rows.order_by("-position"),
        id=F("subject"),
        position=F("position"),
        name=Coalesce(Subquery(name), Value("")),
        who=Value(""),
        at_us=F("received_us"),
    )


def _acknowledgements(project: UUID, since: int) -> _Cases:
    rows = Entry.objects.filter(
        IS_OF_A_RARE_KIND,
        project=project,
        kind=violations.ACKNOWLEDGED_KIND,
        received_us__gte=since,
    )
    person = Person.objects.filter(pseudonym=OuterRef("actor")).values("user__username")
    return _select_columns(
        rows.order_by("-position"),
        id=F("effect"),
        position=F("position"),
        name=F("kind"),
        who=Coalesce(Subquery(person), Value("")),
        at_us=F("received_us"),
    )


def _failed_notifications(project: UUID) -> _Cases:
    """Return those of the latest notifications that failed for good, as their page lists them."""
    latest = notifications.load_latest_notifications(project).values("id")
    return _select_columns(
        Notification.objects.filter(id__in=latest, state="failed").order_by("-id"),
        id=F("channel"),
        position=F("position"),
        name=F("channel__kind"),
        who=F("last_error"),
        at_us=F("due_at_us"),
    )
