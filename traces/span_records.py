"""Records tool calls of spans through the evidence lane, in transactions of bounded size.

Nothing in a span is a command: no gate opens, no permission is used, and an effect that an
agent recorded keeps its state. A span that is sent again gives the same facts, which the journal
knows by their ids; so a request that failed half-way is repeated as a whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from api.endpoint import Call, transact
from api.events import parse, record
from api.idempotency import Reply
from api.plan_columns import compute_intent_digest
from api.problems import Problem
from api.redaction import redact
from api.strictjson.canonical_json import to_canonical_text
from approvals.policies import policy_evaluation
from journal import entries
from journal.models import Entry
from ledger.models import Effect
from sessions import lookup
from sessions.models import Session
from traces import span_facts, span_matches
from traces.span_batch import CallOfConversation, NamedTrace, SpanBatch
from traces.span_matches import WantedCall
from traces.spans import SpanFault
from traces.tool_calls import ToolCall

CHUNK_CALLS: Final = 250  # of one transaction; each call has at most three facts
_CHUNK_TRACES: Final = 500


class PlacedCall(NamedTuple):
    """A tool call, the key of its session, and the key of that session's parent if known."""

    call: ToolCall
    session_key: str
    parent_key: str
    has_conversation: bool


class FactOwner(NamedTuple):
    """A fact, and the number of the call that it is about; -1 for the start of a session."""

    fact: dict[str, Any]
    number: int


def record_spans(call: Call, batch: SpanBatch) -> None:
    """Record the tool calls of a batch, and count what became of them."""
    unplaced = {item.call.span.trace for item in batch.calls if not item.conversation}
    traces = sorted(unplaced | batch.traces.keys())
    parents: dict[str, str] = {}
    for start in range(0, len(traces), _CHUNK_TRACES):
        parents |= _name_traces(call, batch.traces, traces[start : start + _CHUNK_TRACES])
    for start in range(0, len(batch.calls), CHUNK_CALLS):
        placed = [_place_call(item, parents) for item in batch.calls[start : start + CHUNK_CALLS]]

        def run(placed: Sequence[PlacedCall] = placed) -> Reply:
            return Reply(200, _record_calls(call, placed))

        counts = transact(run, lambda: None).body
        batch.recorded += counts["recorded"]
        batch.repeated += counts["repeated"]
        batch.faults += counts["faults"]


def _place_call(item: CallOfConversation, parents: Mapping[str, str]) -> PlacedCall:
    trace = item.call.span.trace
    if item.conversation:
        return PlacedCall(item.call, span_facts.name_conversation(item.conversation), "", True)
    return PlacedCall(
        item.call, span_facts.name_trace_session(trace), parents.get(trace, ""), False
    )


def _name_traces(
    call: Call, named: Mapping[str, NamedTrace], traces: Sequence[str]
) -> dict[str, str]:
    """Record the conversations of traces; return the key of each that is known, by trace.

    The first that is recorded counts. A trace whose calls came before its conversation was known
    becomes a child of it now.
    """

    def run() -> Reply:
        parents = _load_trace_parents(call, traces)
        new = {
            trace: span_facts.name_conversation(named[trace].conversation)
            for trace in traces
            if trace in named and trace not in parents
        }
        sessions = {
            trace: lookup.derive_session_id(call.project, span_facts.name_trace_session(trace))
            for trace in new
        }
        drafts = []
        for trace, key in new.items():
            fact = span_facts.build_trace_fact(trace, key)
            origin = call.origin(to_canonical_text(fact), lane="evidence")
            origin.key = fact["id"]
            drafts.append(origin.draft(fact["kind"], subject=sessions[trace]))
        entries.append_entries(drafts, call.received_us)
        rows = Session.objects.filter(project=call.project, id__in=sessions.values())
        opened = set(rows.values_list("id", flat=True)) if new else set()
        starts = [
            FactOwner(
                span_facts.build_session_fact(
                    span_facts.name_trace_session(trace), named[trace].resource, key
                ),
                -1,
            )
            for trace, key in new.items()
            if sessions[trace] in opened
        ]
        if starts:
            _record_facts(call, starts, ())
        return Reply(200, parents | new)

    parents: dict[str, str] = transact(run, lambda: None).body
    return parents


def _load_trace_parents(call: Call, traces: Sequence[str]) -> dict[str, str]:
    ids = {span_facts.build_trace_id(trace): trace for trace in traces}
    stored = Entry.objects.filter(
        project=call.project, source=call.token.agent_name, event_id__in=list(ids)
    ).values_list("event_id", "body__text")
    return {ids[event_id]: orjson.loads(text)["session_key"] for event_id, text in stored if text}


def _record_calls(call: Call, placed: Sequence[PlacedCall]) -> dict[str, Any]:
    """Record the calls of one transaction; return counts and why spans were rejected."""
    references = {item.parent_key or item.session_key for item in placed}
    sessions = lookup.resolve_session_references(call.project, references)
    wanted = [
        WantedCall(
            item.call,
            sessions[item.parent_key or item.session_key][0],
            _digest_call(call, item.call),
            item.has_conversation,
        )
        for item in placed
    ]
    stored = _load_stored_calls(call, wanted)
    policy = policy_evaluation.load_active_policy(call.project)
    is_enforced = policy is not None and policy.mode == "enforce"
    fresh = [item for item in wanted if span_facts.build_span_id(item.call.span) not in stored]
    candidates = span_matches.load_span_candidates(call.project, fresh, find_recorded=is_enforced)
    starts: dict[str, FactOwner] = {}
    facts: list[FactOwner] = []
    faults: list[str] = []
    enforceable: set[int] = set()
    for number, (item, want) in enumerate(zip(placed, wanted, strict=True)):
        span = item.call.span
        met = stored.get(span_facts.build_span_id(span))
        if met is None:
            match = span_matches.find_match(want, candidates, call.token.agent)
            met = StoredCall(str(match.session), match.effect_key) if match else NOT_MET
            # A span says that a call returned to the model, also a call that was refused. It is
            # compared with an enforced policy only where no recorded effect can explain it.
            is_explained = match is not None or want.session in candidates.recorded_sessions
            if item.call.outcome == "ok" and not is_explained:
                enforceable.add(number)
        try:
            if met.effect_key:
                new = [span_facts.build_evidence_fact(item.call, met.session, met.effect_key)]
            else:
                new = span_facts.build_call_facts(item.call, item.session_key)
                start = span_facts.build_session_fact(
                    item.session_key, span.source.resource, item.parent_key
                )
                starts.setdefault(start["id"], FactOwner(start, -1))
        except SpanFault as fault:
            faults.append(f"Span {span.id}: {fault}")
            continue
        facts += [FactOwner(fact, number) for fact in new]
    counts = _record_facts(call, [*starts.values(), *facts], enforceable)
    counts["faults"] += faults
    return counts


class StoredCall(NamedTuple):
    """The effect next to which a span is recorded; empty if the span made its own effect."""

    session: str
    effect_key: str


NOT_MET: Final = StoredCall("", "")


def _load_stored_calls(call: Call, wanted: Sequence[WantedCall]) -> dict[str, StoredCall]:
    """Return the spans that are recorded already, by id, with the effect that each met."""
    rows = Entry.objects.filter(
        project=call.project,
        source=call.token.agent_name,
        event_id__in=[span_facts.build_span_id(item.call.span) for item in wanted],
    ).values_list("event_id", "kind", "effect")
    kinds = {event_id: (kind, effect) for event_id, kind, effect in rows}
    met = {effect for kind, effect in kinds.values() if kind == span_facts.SPAN_KIND and effect}
    effects: dict[UUID | None, StoredCall] = {}
    if met:
        effect_rows = Effect.objects.filter(id__in=met).values_list("id", "session", "effect_key")
        effects = {effect: StoredCall(str(session), key) for effect, session, key in effect_rows}
    return {event_id: effects.get(effect, NOT_MET) for event_id, (_, effect) in kinds.items()}


def _record_facts(
    call: Call, facts: Sequence[FactOwner], enforceable: "set[int] | tuple[()]"
) -> dict[str, Any]:
    """Record facts as a batch of reports does; a span with an invalid fact is not recorded."""
    parsed = [span_facts.parse_fact(owner.fact) for owner in facts]
    items, rejected = parse.parse_items(call, parsed)
    broken = {
        facts[result["index"]].number: f"{result['detail']} ({result['pointer']})"
        for result in reversed(rejected)
    }
    faults = [detail for number, detail in sorted(broken.items()) if number >= 0]
    items = [item for item in items if facts[item.item_index].number not in broken]
    for item in items:
        if facts[item.item_index].number not in enforceable:
            item.origin.imports = True
    if not items:
        return {"recorded": 0, "repeated": 0, "faults": faults}
    results = record.record_batch(call, items, [], atomic=False)
    statuses: dict[int, str] = {}  # of the last fact of each call, which has the span's id
    conflicts: set[int] = set()
    for result in results:
        number = facts[result["index"]].number
        statuses[number] = result["status"]
        if result["status"] == "conflict":
            conflicts.add(number)
    statuses.pop(-1, None)
    faults += [
        "A span of this id is recorded with other content. Both are kept."
        for number in conflicts
        if number >= 0
    ]
    counted = [status for number, status in statuses.items() if number not in conflicts]
    return {
        "recorded": counted.count("created"),
        "repeated": counted.count("duplicate"),
        "faults": faults,
    }


def _digest_call(call: Call, tool_call: ToolCall) -> str:
    """Return the intent digest of a call as its agent's plan has it; empty if unknown."""
    if not tool_call.tool or not tool_call.has_arguments:
        return ""
    arguments = tool_call.arguments
    try:
        key = call.redaction_key
        if key is not None and redact.might_contain_secret(to_canonical_text(arguments)):
            arguments = redact.redact_value({"arguments": arguments}, key)[0]["arguments"]
        return compute_intent_digest(tool_call.tool, arguments, [])
    except Problem:
        return ""
