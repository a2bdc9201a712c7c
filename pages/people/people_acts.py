"""What people saw and did about a request, an effect or a session, by name.

Views are journal entries: one per person and hour of a session's or an effect's page, and one per
person and shown version of a request. What Gatebook reported to people is listed with them:
requests, violations, stuck rules, and notifications with their delivery.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce
from django.urls import reverse

from approvals import labels
from approvals.checks.run_checks import CHECKS
from approvals.models import Gate
from approvals.policies.engine import Requirement
from display.effect_headline import Moment, Sentence
from journal.entry_times import read_stated_us
from journal.models import Body, Entry
from journal.summaries import parse_body
from ledger.models import Effect
from ledger.verdicts.verdict_inputs import is_in_doubt
from ledger.violations import ACKNOWLEDGED_KIND, VIOLATION_LABELS
from monitoring.models import StuckEpisode
from monitoring.stuck.episodes import build_notification_key, sentence_from_json
from monitoring.stuck.rule_names import RULES, name_rule
from notifications.models import Notification, NotificationChannel
from pages.effects.resolve import ANSWERS
from recovery.control_labels import CONTROL_LABELS
from sessions.models import Message, Session
from web.templatetags.gatebook import elapsed

MAX_ACTS: Final = 200  # of one page
MAX_NOTIFICATIONS: Final = 100
MAX_GATE_ENTRIES: Final = 1_000  # of a request's page, apart from views
# Journal entries of a session that one page searches: a session has more of its agent's.
MAX_SEARCHED: Final = 20_000
MAX_US: Final = 253_370_764_800_000_000  # the year 9999
# Kind of an entry -> what was done.
_ACTS: Final = {
    "gate.requested": "approval requested",
    "gate.voted": "answered the request",
    "gate.ruled": "request decided",
    "gate.extended": "extended the request",
    "gate.undone": "took the answer back",
    "gate.commented": "commented on the request",
    "gate.assigned": "assigned the request",
    "gate.changes_requested": "requested changes",
    "gate.revoked": "revoked the approval",
    "gate.expired": "request expired without an answer",
    "gate.expired_unused": "approval expired unused",
    "gate.cancelled": "request cancelled",
    "gate.used": "approval used",
    "effect.resolved": "resolved the effect",
    "stop.set": "stopped it",
    "stop.lifted": "lifted a stop",
    "session.stuck": "reported as stuck",
    "session.recovered": "no longer stuck",
    "control.fired": "a control found",
    "integrity.violation": "violation recorded",
    ACKNOWLEDGED_KIND: "acknowledged the violation",
}
VIEWED_KIND: Final = "access.viewed"
_KINDS: Final = (*_ACTS, VIEWED_KIND)
# Entries whose body has words of a person, and where.
_QUOTED: Final = {
    "gate.voted": "reason",
    "gate.ruled": "reason",
    "gate.commented": "text",
    "effect.resolved": "rationale",
    "stop.set": "reason",
    ACKNOWLEDGED_KIND: "reason",
}
_VIEWS: Final = {
    "body": "read an entry in full",
    "artifact": "downloaded an artifact",
    "session": "saw the page of the session",
}
_TOPICS: Final = {
    "gate.requested": "about the request",
    "gate.unseen": "that no reviewer opened the request",
    "gate.addressed": "that the request is assigned to them, or mentions them",
    "session.stuck": "that it is stuck",
    "session.recovered": "that it is no longer stuck",
}
_DELIVERIES: Final = {
    "sent": "delivered",
    "due": "not delivered yet",
    "failed": "delivery failed",
    "quiet": "not sent: no longer needed",
}

_Period = tuple[int | None, int | None]  # the first moment (µs) and the one after the last


@dataclass(slots=True)
class PersonAct:
    """One row: when, who (a name, an address or empty) and what; `position` of its entry."""

    at_us: int
    who: str
    what: str
    position: int | None = None
    detail: Sentence = field(default_factory=list)
    quote: str = ""  # a person's words
    handle: str = ""  # what it is about, if that is not the page itself
    url: str = ""
    person: int | None = None  # the account, if it was a person


@dataclass(slots=True)
class Finding:
    """What Gatebook found: a rule or check with its words, and how often."""

    sort: str
    rule: str
    title: str
    count: int
    last_us: int


@dataclass(frozen=True, slots=True)
class PeopleActs:
    """What the section shows; with `older`, acts before that journal position are not listed."""

    acts: list[PersonAct]
    findings: list[Finding]
    older: int | None = None
    limits: list[str] = field(default_factory=list)  # what is listed only in part


def load_effect_acts(effect: Any, entries: Iterable[Entry], gates: Sequence[Gate]) -> PeopleActs:
    """Return the acts about an effect from its journal entries. At most five queries.

    An effect that waited for no one and whose outcome was never in doubt has no stuck rules.
    """
    listed = [entry for entry in entries if entry.lane == "system" and entry.kind in _KINDS]
    was_waited_for = gates or effect.resolution or is_in_doubt(effect)
    subjects = {effect.id, *(gate.id for gate in gates)}
    episodes = _load_episodes(effect.session_id, subjects) if was_waited_for else []
    acts = _describe_entries(listed, gates, {}, effect.id, {})
    notifications, limits = _load_notifications(
        effect.project_id, [gate.id for gate in gates], episodes
    )
    acts += notifications
    return PeopleActs(_in_order(acts), _count_findings(listed, episodes), limits=limits)


def load_gate_acts(gate: Gate) -> PeopleActs:
    """Return the acts about a request; at most seven queries.

    Views are limited separately, so that they never hide an answer.
    The effect may have other requests: what is about those is on their pages.
    """
    others = Gate.objects.filter(effect=gate.effect_id).exclude(id=gate.id)
    entries = (
        Entry.objects.filter(effect=gate.effect_id, kind__in=_KINDS, lane="system")
        .exclude(subject__in=others.values("id"))
        .order_by("-position")
    )
    views = list(entries.filter(kind=VIEWED_KIND)[: MAX_ACTS + 1])
    others_than_views = list(entries.exclude(kind=VIEWED_KIND)[: MAX_GATE_ENTRIES + 1])
    listed = [*others_than_views[:MAX_GATE_ENTRIES], *views[:MAX_ACTS]]
    episodes = _load_episodes(gate.session_id, {gate.id, gate.effect_id})
    handles = {gate.effect_id: str(gate.effect)}
    acts = _describe_entries(listed, [gate], handles, gate.id, {})
    notifications, limits = _load_notifications(gate.project_id, [gate.id], episodes)
    acts += notifications
    if len(views) > MAX_ACTS:
        limits.append(_describe_limit(MAX_ACTS, "views"))
    if len(others_than_views) > MAX_GATE_ENTRIES:
        limits.append(_describe_limit(MAX_GATE_ENTRIES, "answers and events"))
    return PeopleActs(_in_order(acts), _count_findings(listed, episodes), limits=limits)


def load_session_acts(session: Session, before: int | None = None) -> PeopleActs:
    """Return the newest acts about a session and what is in it. At most twelve queries.

    A notification or a message belongs to the page of its time, between the entries at which this
    page and the newer page begin.
    """
    entries = Entry.objects.filter(session=session.id)
    if before is not None:
        entries = entries.filter(position__lt=before)
    searched = entries.order_by("-position").values_list("position", flat=True)
    lowest = next(iter(searched[MAX_SEARCHED : MAX_SEARCHED + 1]), None)
    if lowest is not None:
        entries = entries.filter(position__gt=lowest)
    entries = entries.filter(kind__in=_KINDS, lane="system").order_by("-position")
    listed = list(entries[: MAX_ACTS + 1])
    is_cut = len(listed) > MAX_ACTS
    listed = listed[:MAX_ACTS]
    older = listed[-1].position if is_cut else lowest + 1 if lowest is not None else None
    subjects = {entry.subject for entry in listed if entry.subject is not None}
    gates = list(
        Gate.objects.filter(session=session.id, id__in=subjects).select_related("policy_set")
    )
    effects = {entry.effect for entry in listed if entry.effect}
    positions = Effect.objects.filter(id__in=effects).values_list("id", "opened_position")
    handles = {effect: f"e_{position}" for effect, position in positions}
    since_us, until_us = _load_time(session, older), _load_time(session, before)
    episodes = _load_episodes(session.id, until_us=until_us)
    acts = _describe_entries(
        listed, gates, handles, session.id, {row.raised_position: row for row in episodes}
    )
    session_gates = Gate.objects.filter(session=session.id).values("id")
    period = (since_us, until_us)
    notifications, limits = _load_notifications(session.project_id, session_gates, episodes, period)
    messages, message_limits = _load_messages(session, period)
    acts += [act for act in (*notifications, *messages) if _is_within(act.at_us, period)]
    findings = _count_findings(listed, episodes, gates)
    return PeopleActs(_in_order(acts), findings, older, limits + message_limits)


def _load_time(session: Session, position: int | None) -> int | None:
    """Return the time that the session's first entry from `position` on states."""
    if position is None:
        return None
    entries = Entry.objects.filter(session=session.id, position__gte=position)
    first = entries.order_by("position").first()
    return read_stated_us(first) if first is not None else None


def _is_within(at_us: int, period: _Period) -> bool:
    since_us, until_us = period
    return (since_us is None or at_us >= since_us) and (until_us is None or at_us < until_us)


def _filter_period(name: str, period: _Period) -> Q:
    since_us, until_us = period
    condition = Q() if since_us is None else Q((f"{name}__gte", since_us))
    return condition if until_us is None else condition & Q((f"{name}__lt", until_us))


def _describe_limit(number: int, name: str) -> str:
    return f"Only the newest {number} {name} are listed."


def _in_order(acts: Iterable[PersonAct]) -> list[PersonAct]:
    return sorted(acts, key=lambda act: (act.at_us, act.position or 0))


def _describe_entries(
    entries: Sequence[Entry],
    gates: Iterable[Gate],
    handles: Mapping[Any, str],
    page: UUID,
    episodes: Mapping[int | None, StuckEpisode],
) -> list[PersonAct]:
    """Return an act for each entry; `page` is what the page shows, and needs no link."""
    facts = {entry.position: _read_facts(entry) for entry in entries}
    assignees = {fact["to"] for fact in facts.values() if fact.get("to")}
    people = _load_people({entry.actor for entry in entries if entry.actor} | assignees)
    names = {pseudonym: user.get_username() for pseudonym, user in people.items()}
    quotes = _load_quotes(entries)
    gate_rows = {gate.id: gate for gate in gates}

    def describe(entry: Entry) -> PersonAct:
        fact = facts[entry.position]
        gate = gate_rows.get(entry.subject) if entry.subject is not None else None
        what, detail = _describe_entry(entry, fact, gate, names, episodes.get(entry.position))
        subject = (str(gate), reverse("gate", args=[gate.id])) if gate is not None else ("", "")
        if gate is None and entry.effect in handles:
            subject = (handles[entry.effect], reverse("effect", args=[entry.effect]))
        is_page = entry.subject == page or (gate is None and entry.effect == page)
        return PersonAct(
            read_stated_us(entry),
            names.get(entry.actor, _describe_unnamed(entry.actor)),
            what,
            entry.position,
            detail,
            quotes.get(entry.position, ""),
            *(("", "") if is_page else subject),
            people[entry.actor].pk if entry.actor in people else None,
        )

    return [describe(entry) for entry in entries]


def _read_facts(entry: Entry) -> dict[str, Any]:
    """Return the facts that have the expected types: a foreign bundle may contain any."""

    def is_expected(name: str, value: Any) -> bool:
        if name.endswith("_us"):
            return type(value) is int and 0 <= value <= MAX_US
        if name == "warnings":
            return isinstance(value, list) and all(isinstance(check, str) for check in value)
        return isinstance(value, str) or (name == "version" and type(value) is int)

    facts = parse_body(entry.facts or "{}")
    return {name: value for name, value in facts.items() if is_expected(name, value)}


def _describe_entry(
    entry: Entry,
    facts: Mapping[str, Any],
    gate: Gate | None,
    names: Mapping[str, str],
    episode: StuckEpisode | None,
) -> tuple[str, Sentence]:
    """Return what was done, and what the entry says of it."""
    if entry.kind == VIEWED_KIND:
        if gate is not None:
            version = facts.get("version")
            return "saw the request" + (f", version {version}" if version else ""), []
        return _VIEWS.get(facts.get("what", ""), "saw the page of the effect"), []
    describe = _DETAILS.get(entry.kind)
    what = _ACTS[entry.kind]
    if entry.kind == "gate.voted":
        what = labels.VOTE_ANSWER_LABELS.get(facts.get("vote", ""), (what, ""))[0]
        what = f"answered the request: {what}"
    elif entry.kind == "gate.ruled":
        what = f"{what}: {str(facts.get('ruling', '')).replace('_', ' ')}"
    elif entry.kind == "effect.resolved" and facts.get("answer") in ANSWERS:
        what = f"{what}: {ANSWERS[facts['answer']][1]}"
    elif entry.kind == "gate.requested" and gate is not None:
        return what, [f"from {labels.describe_approvers(Requirement.of(gate.requirement))}"]
    elif entry.kind == "gate.assigned":
        return what, [f"to {_describe_assignee(facts.get('to', ''), names)}"]
    elif entry.kind == "session.stuck" and episode is not None and episode.says:
        return what, [f"{name_rule(facts)}: ", *sentence_from_json(episode.says)]
    return what, describe(facts) if describe is not None else []


def _describe_assignee(pseudonym: str, names: Mapping[str, str]) -> str:
    if not pseudonym:
        return "no one"
    return names.get(pseudonym) or _describe_unnamed(pseudonym) or "a person without a name here"


def _describe_vote(facts: Mapping[str, Any]) -> Sentence:
    parts = []
    if facts.get("at_us") and facts.get("first_shown_us"):
        parts.append(f"{elapsed(facts['at_us'] - facts['first_shown_us'])} after first seeing it")
    warnings = Counter(facts.get("warnings", ()))
    if warnings:
        words = ", ".join(
            f"{check.replace('_', ' ')}{f' ×{number}' if number > 1 else ''}"
            for check, number in warnings.items()
        )
        parts.append(f"the page warned: {words}")
    if facts.get("proof") not in (None, "", "none"):
        parts.append(f"with {labels.GIVEN_PROOF_LABELS.get(facts['proof'], 'the name typed')}")
    return ["; ".join(parts)] if parts else []


_DETAILS: Final[dict[str, Callable[[Mapping[str, Any]], Sentence]]] = {
    "gate.voted": _describe_vote,
    "gate.extended": lambda facts: (
        [" until ", Moment(facts["decide_by_us"])] if "decide_by_us" in facts else []
    ),
    "gate.cancelled": lambda facts: [labels.END_REASON_LABELS.get(facts.get("reason", ""), "")],
    "session.stuck": lambda facts: [name_rule(facts)],
    "session.recovered": lambda facts: [name_rule(facts)],
    "control.fired": lambda facts: [CONTROL_LABELS.get(str(facts.get("control", "")), "")],
    "integrity.violation": lambda facts: [VIOLATION_LABELS.get(facts.get("violation", ""), "")],
}


def _describe_unnamed(actor: str) -> str:
    # Only pseudonyms of people begin so; an archive, and an erased person, have no name.
    return f"a person without a name here ({actor})" if actor.startswith("p_") else ""


def _load_people(pseudonyms: set[str]) -> dict[str, User]:
    people = User.objects.filter(person__pseudonym__in=pseudonyms).select_related("person")
    return {user.person.pseudonym: user for user in people} if pseudonyms else {}


def _load_quotes(entries: Iterable[Entry]) -> dict[int, str]:
    """Return by position what people wrote; erased words are absent. One query, or none."""
    kinds = {entry.position: entry.kind for entry in entries if entry.kind in _QUOTED}
    if not kinds:
        return {}
    quotes = {}
    for position, text in Body.objects.filter(entry__in=kinds).values_list("entry", "text"):
        words = parse_body(text).get(_QUOTED[kinds[position]])
        if isinstance(words, str) and words.strip():
            quotes[position] = words
    return quotes


def _load_episodes(
    session: UUID, subjects: Collection[UUID] = (), until_us: int | None = None
) -> list[StuckEpisode]:
    """Return raised episodes of a session, newest first; with `subjects` only about them."""
    rows = StuckEpisode.objects.filter(session=session, raised_us__isnull=False)
    if subjects:
        rows = rows.filter(subject__in=subjects)
    if until_us is not None:
        rows = rows.filter(raised_us__lt=until_us)
    return list(rows.order_by("-since_us")[:MAX_ACTS])


def _load_notifications(
    project: UUID,
    gates: "Sequence[UUID] | QuerySet[Gate, Any]",
    episodes: Iterable[StuckEpisode],
    period: _Period = (None, None),
) -> tuple[list[PersonAct], list[str]]:
    """Return the notifications about requests (by id) and stuck rules. At most two queries."""
    keys = {
        build_notification_key(row.session_id, row.subject, row.rule, row.epoch): row
        for row in episodes
    }
    keys |= {f"over:{key}": row for key, row in keys.items()}
    notifications = Notification.objects.annotate(at_us=Coalesce("sent_at_us", "due_at_us"))
    notifications = notifications.filter(_filter_period("at_us", period))
    notifications = notifications.select_related("channel__person").order_by("-id")
    channels = NotificationChannel.objects.filter(project=project)
    rows: list[Any] = []
    limits: set[str] = set()
    for condition in (Q(gate__in=gates), Q(channel__in=channels, key__in=keys)):
        newest = list(notifications.filter(condition)[: MAX_NOTIFICATIONS + 1])
        rows += newest[:MAX_NOTIFICATIONS]
        if len(newest) > MAX_NOTIFICATIONS:
            limits.add(_describe_limit(MAX_NOTIFICATIONS, "notifications of a kind"))
    acts = [
        PersonAct(
            row.at_us,
            _name_recipient(row.channel),
            f"notified {_TOPICS.get(row.topic, 'about the answer')}: {_DELIVERIES[row.state]}",
            None,
            [f"{keys[row.key].rule} {RULES[keys[row.key].rule]}"] if row.key in keys else [],
        )
        for row in rows
    ]
    return acts, list(limits)


def _name_recipient(channel: NotificationChannel) -> str:
    """Return the person of a channel, else its host: viewers may not read whole addresses."""
    if channel.person is not None:
        return channel.person.get_username()
    return f"{channel.kind} at {channel.host}"


def _load_messages(session: Session, period: _Period) -> tuple[list[PersonAct], list[str]]:
    """Return messages about a session, when agents read them, and answers. One query."""
    rows = Message.objects.filter(session=session).select_related(
        "from_agent", "from_user", "recipient", "in_reply_to"
    )
    rows = rows.filter(_filter_period("sent_at_us", period) | _filter_period("read_at_us", period))
    newest = list(rows.order_by("-opened_position")[: MAX_ACTS + 1])
    acts = []
    for row in newest[:MAX_ACTS]:
        sender = row.from_user.get_username() if row.from_user else ""
        sender = f"agent {row.from_agent.name}" if row.from_agent else sender
        to = f"agent {row.recipient.name}" if row.recipient else "all agents"
        what = f"answered {row.in_reply_to}" if row.in_reply_to else f"wrote to {to}"
        url = reverse("session_messages", args=[session.id])
        acts.append(
            PersonAct(row.sent_at_us, sender, what, row.opened_position, handle=str(row), url=url)
        )
        if row.read_at_us is not None:
            acts.append(
                PersonAct(row.read_at_us, to, "read the message", None, handle=str(row), url=url)
            )
    return acts, [_describe_limit(MAX_ACTS, "messages")] if len(newest) > MAX_ACTS else []


def _count_findings(
    entries: Iterable[Entry], episodes: Iterable[StuckEpisode], gates: Iterable[Gate] = ()
) -> list[Finding]:
    """Return what rules, checks and controls found, each with its number, most first."""
    findings: dict[tuple[str, str], Finding] = {}

    def add(sort: str, rule: str, title: str, at_us: int) -> None:
        finding = findings.setdefault((sort, rule), Finding(sort, rule, title, 0, at_us))
        finding.count += 1
        finding.last_us = max(finding.last_us, at_us)

    for gate in gates:
        name = f"{gate.policy_set}/{gate.rule}" if gate.policy_set and gate.rule else "no rule"
        add("policy rule", name, "requested approval", gate.requested_at_us)
    for row in episodes:
        add("stuck rule", row.rule, RULES[row.rule], row.raised_us or row.since_us)
    for entry in entries:
        facts, at_us = _read_facts(entry), read_stated_us(entry)
        if entry.kind == "gate.voted":
            for check in facts.get("warnings", ()):
                add("warning shown with an answer", check, CHECKS.get(check, ""), at_us)
        elif entry.kind == "control.fired":
            control = str(facts.get("control", ""))
            add("control", control, CONTROL_LABELS.get(control, ""), at_us)
        elif entry.kind == "integrity.violation":
            name = str(facts.get("violation", ""))
            add("violation", name, VIOLATION_LABELS.get(name, ""), at_us)
    return sorted(findings.values(), key=lambda finding: (-finding.count, finding.rule))
