"""Policy pages: rules in force, statistics, drafts, dry runs, activation."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts import people
from accounts.access import MemberRequest, member_required, role_required
from accounts.models import Project
from approvals import exemptions
from approvals.gates import statuses
from approvals.models import Activation, PolicySet
from approvals.policies import draft_help, dry_run, labels, policies, statistics
from approvals.policies.dry_run import DryRun, OutcomeChange
from approvals.policies.engine import Requirement
from approvals.policies.labels import ConditionText
from approvals.policies.policies_yaml import MAX_BYTES, DocumentError
from approvals.policies.staffing_check import find_understaffed_rules
from approvals.policies.statistics import RuleMatchCounts, RuleStatistics
from approvals.policies.working_hours import WorkingHours
from db.clock import now_us
from db.errors import ChangeRefused
from db.whole_days import build_period

MAX_HISTORY: Final = 50  # policy sets and activations on a page
MAX_TESTED_EFFECTS: Final = 20_000  # effects; the command tests all
MAX_TESTED_LIVE: Final = 2_000  # effects, while a person types
MAX_SHOWN_CHANGES: Final = 200
MAX_CHANGES_OF_DRAFT: Final = 8  # while a person types
_TEXTAREA: Final = {
    "rows": 24,
    "class": "is-code",
    "autocapitalize": "off",
    "autocomplete": "off",
    "spellcheck": "false",
}
_MODES: Final = [
    ("observe", "Observe: nothing is held; outcomes of the rules are recorded"),
    (
        "enforce",
        "Enforce: rules hold or refuse effects; unmatched effects wait, unless they change nothing",
    ),
]


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule as the pages show it."""

    id: str
    title: str
    outcome: str
    conditions: list[ConditionText]
    asks: str
    matches: RuleMatchCounts
    budget: RuleStatistics


class DraftForm(forms.Form):
    """A draft of rules and the options of its dry run."""

    text = forms.CharField(
        label="Rules, as YAML",
        max_length=MAX_BYTES,
        strip=False,
        widget=forms.Textarea(attrs=dict(_TEXTAREA)),
    )
    days = forms.ChoiceField(
        label="Test on the effects of the last",
        choices=[("1", "1 day"), ("7", "7 days"), ("14", "14 days"), ("30", "30 days")],
        initial="14",
    )
    mode = forms.ChoiceField(
        label="In mode", choices=[(mode, mode) for mode in statuses.POLICY_MODES], initial="enforce"
    )

    def clean_text(self) -> str:
        """Replace the CRLF that browsers send by LF."""
        return str(self.cleaned_data["text"]).replace("\r\n", "\n")


class ActivateForm(forms.Form):
    """The mode, without a default: people must choose it."""

    mode = forms.ChoiceField(label="Mode", choices=_MODES, widget=forms.RadioSelect)


@require_safe
@member_required
def policies_page(request: MemberRequest) -> HttpResponse:
    """Show the rules in force, their statistics of the last 30 days, and the history."""
    project = request.membership.project
    current = policies.load_activation(project)
    rules: list[RuleView] = []
    unmatched = RuleMatchCounts()
    if current is not None:
        name, now = current.policy_set.name, now_us()
        since = build_period(now, statistics.DAYS).since_us
        matched = statistics.count_rule_matches(project, name, since)
        costs = statistics.load_rule_statistics(project, name, since, now)
        rules = [_rule_view(rule, matched, costs) for rule in current.policy_set.rules["rules"]]
        unmatched = matched.get("", unmatched)
    context = {
        "current": current,
        "rules": rules,
        "unmatched": unmatched,
        "hours": WorkingHours.of(current.policy_set.rules) if current else None,
        "unanswerable": find_understaffed_rules(project, current.policy_set.rules)
        if current
        else [],
        "exempting": exemptions.count_live_exemptions(project.id, now_us()),
        "asking": [rule for rule in rules if rule.budget.requests],
        "since_text": build_period(now_us(), statistics.DAYS).text,
        "most_matches": max((rule.matches.total for rule in rules), default=0),
        "most_requests": max((rule.budget.requests for rule in rules), default=0),
        "most": statistics.MOST_EFFECTS,
        "most_votes": statistics.MOST_VOTES,
        "days": statistics.DAYS,
        "sets": PolicySet.objects.filter(project=project)
        .defer("text", "rules")
        .order_by("-loaded_at_us")[:MAX_HISTORY],
        "activations": _load_activations(project.activations.all()),
    }
    return render(request, "approvals/policies/policies.html", context)


@require_safe
@member_required
def policy_set_page(request: MemberRequest, policy_set: UUID) -> HttpResponse:
    """Show one loaded policy set, with its rules in words."""
    policy_set_row = get_object_or_404(request.membership.project.policy_sets, pk=policy_set)
    context = {
        "policy_set": policy_set_row,
        "rules": [_rule_view(rule, {}, {}) for rule in policy_set_row.rules["rules"]],
        "hours": WorkingHours.of(policy_set_row.rules),
        "unanswerable": find_understaffed_rules(request.membership.project, policy_set_row.rules),
        "current": policies.load_activation(request.membership.project),
        "activations": _load_activations(policy_set_row.activations.all()),
    }
    return render(request, "approvals/policies/policy_set.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
@vary_on_headers("HX-Request")
def draft_page(request: MemberRequest) -> HttpResponse:
    """Edit a draft, check and test it (writes nothing), load it (puts nothing in force).

    The editor's script gets the check alone, which tests the draft on fewer effects.
    """
    project = request.membership.project
    is_fragment = bool(request.headers.get("HX-Request"))
    template = (
        "approvals/policies/_what_the_draft_would_have_done.html"
        if is_fragment
        else "approvals/policies/draft.html"
    )
    context: dict[str, Any] = {
        "examples": draft_help.EXAMPLES,
        "words": "" if is_fragment else json.dumps(draft_help.load_completions(project)),
        "most_changes": MAX_CHANGES_OF_DRAFT,
    }
    do = request.POST.get("do", "check")
    if request.method != "POST" or do.startswith("example:"):
        text = request.POST.get("text", "").replace("\r\n", "\n")
        if request.method == "POST":
            text = draft_help.insert_example(text, do.removeprefix("example:"))
        else:
            text = _initial_text(request)
        return render(request, template, context | {"form": DraftForm(initial={"text": text})})
    form = DraftForm(request.POST)
    context["form"] = form
    if form.is_valid():
        text = form.cleaned_data["text"]
        try:
            if do == "load":
                return _load_draft(request, text)
            most = MAX_TESTED_EFFECTS if do == "dry_run" else MAX_TESTED_LIVE
            context |= _check_draft(project, form.cleaned_data, most)
            context["is_tested"] = do == "dry_run"
        except DocumentError as fault:
            form.add_error("text", str(fault))
            context["fault"] = fault
    # A fragment is a good answer about a bad text.
    status = 422 if form.errors and not is_fragment else 200
    return render(request, template, context, status=status)


def _check_draft(project: Project, fields: dict[str, Any], most: int) -> dict[str, Any]:
    """Compare a draft with the rules in force, and replay it over recent effects.

    Raises DocumentError.
    """
    text, days = fields["text"], int(fields["days"])
    current = policies.load_activation(project)
    set_in_force = current.policy_set if current else None
    difference = draft_help.compare_rules(
        set_in_force.rules if set_in_force else None,
        set_in_force.text if set_in_force else "",
        text,
    )
    replay = dry_run.prepare_dry_run(project, text, days=days, mode=fields["mode"], most=most)
    changes = _collect_changes(replay)
    now, then = Counter[str](), Counter[str]()
    for (before, after), count in replay.outcomes.items():
        now[before] += count
        then[after] += count
    return {
        "current": current,
        "difference": difference,
        "replay": replay,
        "changes": changes,
        "changed": sum(
            count for (before, after), count in replay.outcomes.items() if before != after
        ),
        "totals": [
            (outcome, now[outcome], then[outcome])
            for outcome in ("ask", "allow", "deny", dry_run.IMPOSSIBLE)
            if now[outcome] or then[outcome]
        ],
        "counts": sorted(replay.outcomes.items()),
        "days": days,
        "shown": MAX_SHOWN_CHANGES,
    }


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def activate_page(request: MemberRequest, policy_set: UUID) -> HttpResponse:
    """Ask for the mode, then put a policy set in force."""
    project = request.membership.project
    policy_set_row = get_object_or_404(project.policy_sets, pk=policy_set)
    form = ActivateForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        mode = form.cleaned_data["mode"]
        try:
            with transaction.atomic(durable=True):
                actor = people.ensure_pseudonym(request.user)
                policies.activate_policy_set(project, policy_set_row, mode, request.user, actor)
        except ChangeRefused as refusal:
            form.add_error("mode", str(refusal))
        else:
            messages.success(request, f"{policy_set_row} is in force now, in mode {mode}.")
            return redirect("policies")
    current = policies.load_activation(project)
    in_force = current.policy_set if current else None
    context = {
        "form": form,
        "policy_set": policy_set_row,
        "current": current,
        "difference": draft_help.compare_rules(
            in_force.rules if in_force else None,
            in_force.text if in_force else "",
            policy_set_row.text,
        ),
        "unanswerable": find_understaffed_rules(project, policy_set_row.rules),
    }
    return render(
        request, "approvals/policies/activate.html", context, status=422 if form.errors else 200
    )


def _load_draft(request: MemberRequest, text: str) -> HttpResponse:
    project = request.membership.project
    stored = policies.find_policy_set(project, text)
    with transaction.atomic(durable=True):
        policy_set = policies.load_policy_set(project, text, people.ensure_pseudonym(request.user))
    words = (
        f"Already loaded as {policy_set}. Nothing was saved."
        if stored
        else f"Saved as {policy_set}. It is not in force yet."
    )
    messages.success(request, words)
    return redirect("policy_set", policy_set=policy_set.pk)


def _initial_text(request: MemberRequest) -> str:
    """Return the initial text: the requested set, else the set in force, else nothing."""
    project = request.membership.project
    try:
        wanted = UUID(request.GET.get("from", ""))
    except ValueError:
        current = policies.load_activation(project)
        return current.policy_set.text if current else ""
    return get_object_or_404(project.policy_sets, pk=wanted).text


def _collect_changes(replay: DryRun) -> list[OutcomeChange]:
    """Run a dry run to its end and keep the newest changes."""
    changes: list[OutcomeChange] = []
    for change in replay:
        if len(changes) < MAX_SHOWN_CHANGES:
            changes.append(change)
    return changes


def _rule_view(
    rule: dict[str, Any], matched: dict[str, RuleMatchCounts], costs: dict[str, RuleStatistics]
) -> RuleView:
    required = rule["require"]
    asks = labels.describe_requirement(Requirement.of(required)) if required else ""
    if rule.get("same_call_unknown"):
        asks = f"{labels.SAME_CALL_UNKNOWN}: {asks}"
    return RuleView(
        id=rule["id"],
        title=rule["title"],
        outcome=rule["outcome"],
        conditions=labels.describe_conditions(rule["match"]),
        asks=asks,
        matches=matched.get(rule["id"], RuleMatchCounts()),
        budget=costs.get(rule["id"], RuleStatistics()),
    )


def _load_activations(rows: Any) -> list[Activation]:
    return list(
        rows.select_related("user", "policy_set")
        .defer(*_LARGE_COLUMNS)
        .order_by("-id")[:MAX_HISTORY]
    )


_LARGE_COLUMNS: Final = ("policy_set__text", "policy_set__rules")
