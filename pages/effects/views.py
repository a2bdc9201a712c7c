"""Effect page, raw bodies of its journal entries, and stored artifacts."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from accounts.header_counts import load_project_status
from db.clock import now_us
from display import access_log, effect_headline, effect_runs, permission_labels
from display.handles import parse_position
from display.keyset_pagination import MAX_POSITION
from display.page_params import parse_page_place
from hooks.code_hosts import shown_events
from investigation import repeated_calls
from investigation.bundles import imported_gates
from journal import sent_meta
from ledger import resolutions, stops
from ledger import violations as ledger_violations
from pages.effects import data, lifecycle, relation_graph
from pages.history import views
from pages.incidents import data as incidents_data
from pages.people import people_acts

# the headline already states this violation
HEADLINE_VIOLATION: Final = ledger_violations.VIOLATION_LABELS["executed_without_permission"]


@require_safe
@member_required
def effect_page_view(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Show everything known about one effect, starting with its headline sentence."""
    row = load_effect_or_404(request, effect)
    if "asof" in request.GET:
        _record_view(request, "effect", row.opened_position, row)
        return views.effect_as_of(request, row)
    now = now_us()
    place = parse_page_place(request.GET, (), ("fact",))
    attempts, attempt_total = data.load_attempts_for_page(row)
    compensations, children = data.load_related_effects(row)
    gates, violations = (
        data.load_gates_of_effect(row),
        ledger_violations.load_effect_violations(row),
    )
    case, verdict = data.load_case_and_verdict(row, attempts, now)
    people_asked = not resolutions.evaluate_prompt(case, verdict, row.deadline_us, now).refused
    exchange = data.load_exchange(row, attempts)
    facts = data.load_entry_page(
        row, place.window.before, parse_position(request.GET.get("fact", ""))
    )
    run = effect_runs.read_run_times(row)
    elsewhere = data.load_same_calls(row)
    repeats = repeated_calls.load_repeats_of_effect(row, {link.other.id for link in elsewhere})
    nearest = repeated_calls.find_nearest_call(row, repeats)
    context = {
        "effect": row,
        "run": run,
        "run_source": effect_runs.RUN_SOURCES.get(run.ran_source, ""),
        "title": data.build_effect_title(row, exchange),
        "people_acts": people_acts.load_effect_acts(
            row, [each.entry for each in facts.rows], gates
        ),
        "let_through": permission_labels.describe_let_through(row, is_gated=bool(gates)),
        "used_exemption": data.load_used_exemption(row),
        "verdict": verdict,
        "may_resolve": people_asked
        and has_role(request.membership, "operator")
        and not row.imported,
        "resolutions": resolutions.load_resolutions(row),
        "host_matches": shown_events.load_effect_matches(row) if row.has_host_matches else [],
        "compared": data.compare_with_review(row, attempts, gates, violations),
        "headline": effect_headline.effect_headline(row, attempts, attempt_total, now, violations),
        "life": lifecycle.life_stages(row, attempts, now),
        "attempts": attempts,
        "attempts_in_all": attempt_total,
        "tool": data.load_tool_declaration(row),
        "exchange": exchange,
        "meta": sent_meta.format_meta(sent_meta.load_effect_meta(row.id)),
        "facts": facts,
        "undoing": compensations,
        "children": children,
        "elsewhere": elsewhere,
        "repeats": repeats,
        "nearest_call": nearest,
        "graph": _draw_graph(row, attempts, compensations, children, elsewhere, repeats, now),
        "artifacts": data.load_effect_artifacts(row),
        "gates": gates,
        "violates": bool(violations),
        "violations": [
            words
            for words in violations
            if words != (HEADLINE_VIOLATION if row.permission == "bypassed" else violations[0])
        ],
        "stop": stops.find_stop(row.project_id, row.session_id, row.agent_id, row.tool, row.id)
        if load_project_status(request).has_stops
        else None,
        "is_ended_unrun": (is_unrun := effect_headline.is_ended_unrun(row)),
        "is_over": is_unrun or row.state in ("acknowledged", "compensated", "superseded"),
        "may_rule": has_role(request.membership, "reviewer") and not row.imported,
        "bundle": imported_gates.bundle_of_session(row.session) if row.imported else None,
        "may_gather": has_role(request.membership, "reviewer"),
        "incidents": incidents_data.list_row_incidents(row, "effect"),
        "there": imported_gates.original_handle(row) if row.imported else "",
        "place": place,
        "now": now,
    }
    page = render(request, "pages/effects/effect.html", context)
    _record_view(request, "effect", row.opened_position, row)
    return page


def _draw_graph(
    row: Any,
    attempts: Sequence[Any],
    compensations: Sequence[Any],
    children: Sequence[Any],
    elsewhere: Sequence[Any],
    repeats: Sequence[repeated_calls.RepeatedCall],
    now: int,
) -> relation_graph.RelationGraph | None:
    """Return the graph of what the table of related effects lists. No queries."""

    def node(effect: Any, how: str) -> relation_graph.RelatedNode:
        return relation_graph.RelatedNode(effect, how, reverse("effect", args=[effect.id]))

    before = [node(row.parent_effect, "parent of this effect")] if row.parent_effect else []
    before += [node(row.compensates, "compensated by this effect")] if row.compensates else []
    before += [
        node(link.other, f"same call before, in {link.other.session}")
        for link in elsewhere
        if link.earlier
    ]
    before += [
        node(repeat.other, f"same call, earlier, in {repeat.other.session}")
        for repeat in repeats
        if repeat.is_earlier
    ]
    after = [node(each, "compensates this effect") for each in compensations]
    after += [node(each, "child of this effect") for each in children]
    after += [
        node(link.other, f"same call since, in {link.other.session}")
        for link in elsewhere
        if not link.earlier
    ]
    after += [
        node(repeat.other, f"same call, later, in {repeat.other.session}")
        for repeat in repeats
        if not repeat.is_earlier
    ]
    return relation_graph.draw_relations(row, attempts, before, after, now)


@require_safe
@member_required
def raw_entry_body(request: MemberRequest, effect: UUID, position: int) -> HttpResponse:
    """Return the stored text of one entry, byte for byte, as a plain-text download."""
    row = load_effect_or_404(request, effect)
    stored = data.load_stored_bodies(row, position) if position <= MAX_POSITION else []
    if not stored:
        raise Http404
    if stored[0] is None:
        expired = data.load_expiry(position)
        text = (
            f"The text expired ({expired.reason}). Entry {expired.expired_by} records it.\n"
            if expired is not None
            else "This body was erased.\n"
        )
        return HttpResponse(text, status=410, content_type="text/plain; charset=utf-8")
    _record_view(request, "body", position, row)
    response = HttpResponse(
        stored[0].encode("utf-8", "surrogatepass"), content_type="text/plain; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="{row}-fact-{position}.txt"'
    return response


def _record_view(request: MemberRequest, what: str, number: int, row: Any) -> None:
    """Record in the journal that a person was shown data from an agent."""
    of = (row.session_id, row.id, row.id)
    access_log.record_view(row.project_id, access_log.access_actor(request), what, number, of)


def load_effect_or_404(request: MemberRequest, effect_id: UUID) -> Any:
    """Load an effect of the current project. Raises Http404."""
    row = data.load_effect_for_page(request.membership.project, effect_id)
    if row is None:
        raise Http404
    return row
