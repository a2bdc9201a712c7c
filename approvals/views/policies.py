"""Policy pages: rules in force, statistics, drafts, dry runs, activation."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from approvals import budget, policies, rehearsal, rule_words, states
from approvals.answerable import unanswerable
from approvals.budget import Budget, Matches
from approvals.document import MAX_BYTES, DocumentError
from approvals.hours import Hours
from approvals.models import Activation, PolicySet
from approvals.rehearsal import Change, Rehearsal
from approvals.requirement import Requirement
from approvals.rule_words import Phrase
from journal.clock import now_us
from sessions import people
from sessions.access import MemberRequest, member, requires
from sessions.refused import RefusedError

HISTORY: Final = 50  # policy sets and activations on a page
MOST_REHEARSED: Final = 20_000  # effects; the command tests all
SHOWN_CHANGES: Final = 200
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
class ShownRule:
    """A rule as the pages show it."""

    id: str
    title: str
    outcome: str
    conditions: list[Phrase]
    asks: str
    matches: Matches
    budget: Budget


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
        label="In mode", choices=[(mode, mode) for mode in states.MODES], initial="enforce"
    )

    def clean_text(self) -> str:
        """Replace the CRLF that browsers send by LF."""
        return str(self.cleaned_data["text"]).replace("\r\n", "\n")


class ActivateForm(forms.Form):
    """The mode, without a default: people must choose it."""

    mode = forms.ChoiceField(label="Mode", choices=_MODES, widget=forms.RadioSelect)


@require_safe
@member
def policies_page(request: MemberRequest) -> HttpResponse:
    """Show the rules in force, their statistics of the last 30 days, and the history."""
    project = request.membership.project
    current = policies.current(project)
    rules: list[ShownRule] = []
    unmatched = Matches()
    if current is not None:
        name, now = current.policy_set.name, now_us()
        since = now - budget.DAYS * rehearsal.DAY_US
        matched = budget.matches(project, name, since)
        costs = budget.budgets(project, name, since, now)
        rules = [_rule_view(rule, matched, costs) for rule in current.policy_set.rules["rules"]]
        unmatched = matched.get("", unmatched)
    context = {
        "current": current,
        "rules": rules,
        "unmatched": unmatched,
        "hours": Hours.of(current.policy_set.rules) if current else None,
        "unanswerable": unanswerable(project, current.policy_set.rules) if current else [],
        "asking": [rule for rule in rules if rule.budget.requests],
        "most": budget.MOST_EFFECTS,
        "most_votes": budget.MOST_VOTES,
        "days": budget.DAYS,
        "sets": PolicySet.objects.filter(project=project)
        .defer("text", "rules")
        .order_by("-loaded_at_us")[:HISTORY],
        "activations": _load_activations(project.activations.all()),
    }
    return render(request, "approvals/policies.html", context)


@require_safe
@member
def policy_set_page(request: MemberRequest, policy_set: UUID) -> HttpResponse:
    """Show one loaded policy set, with its rules in words."""
    policy_set_row = get_object_or_404(request.membership.project.policy_sets, pk=policy_set)
    context = {
        "policy_set": policy_set_row,
        "rules": [_rule_view(rule, {}, {}) for rule in policy_set_row.rules["rules"]],
        "hours": Hours.of(policy_set_row.rules),
        "unanswerable": unanswerable(request.membership.project, policy_set_row.rules),
        "current": policies.current(request.membership.project),
        "activations": _load_activations(policy_set_row.activations.all()),
    }
    return render(request, "approvals/policy_set.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def draft_page(request: MemberRequest) -> HttpResponse:
    """Edit a draft, test it (writes nothing), load it (puts nothing in force)."""
    project = request.membership.project
    if request.method != "POST":
        return render(
            request,
            "approvals/draft.html",
            {"form": DraftForm(initial={"text": _initial_text(request)})},
        )
    form = DraftForm(request.POST)
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        text = form.cleaned_data["text"]
        try:
            if request.POST.get("do") == "load":
                return _load_draft(request, text)
            days = int(form.cleaned_data["days"])
            replay = rehearsal.rehearse(
                project, text, days=days, mode=form.cleaned_data["mode"], most=MOST_REHEARSED
            )
            changes = _collect_changes(replay)
            counts = sorted(replay.outcomes.items())
            context |= {
                "replay": replay,
                "changes": changes,
                "counts": counts,
                "days": days,
                "shown": SHOWN_CHANGES,
            }
        except DocumentError as fault:
            form.add_error("text", str(fault))
    return render(request, "approvals/draft.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def activate_page(request: MemberRequest, policy_set: UUID) -> HttpResponse:
    """Ask for the mode, then put a policy set in force."""
    project = request.membership.project
    policy_set_row = get_object_or_404(project.policy_sets, pk=policy_set)
    form = ActivateForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        mode = form.cleaned_data["mode"]
        try:
            with transaction.atomic(durable=True):
                actor = people.pseudonym_of(request.user)
                policies.activate(project, policy_set_row, mode, request.user, actor)
        except RefusedError as refusal:
            form.add_error("mode", str(refusal))
        else:
            messages.success(request, f"{policy_set_row} is in force now, in mode {mode}.")
            return redirect("policies")
    context = {
        "form": form,
        "policy_set": policy_set_row,
        "current": policies.current(project),
        "unanswerable": unanswerable(project, policy_set_row.rules),
    }
    return render(request, "approvals/activate.html", context, status=422 if form.errors else 200)


def _load_draft(request: MemberRequest, text: str) -> HttpResponse:
    project = request.membership.project
    stored = policies.stored(project, text)
    with transaction.atomic(durable=True):
        policy_set = policies.load(project, text, people.pseudonym_of(request.user))
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
        current = policies.current(project)
        return current.policy_set.text if current else ""
    return get_object_or_404(project.policy_sets, pk=wanted).text


def _collect_changes(replay: Rehearsal) -> list[Change]:
    """Run a dry run to its end and keep the newest changes."""
    changes: list[Change] = []
    for change in replay:
        if len(changes) < SHOWN_CHANGES:
            changes.append(change)
    return changes


def _rule_view(
    rule: dict[str, Any], matched: dict[str, Matches], costs: dict[str, Budget]
) -> ShownRule:
    required = rule["require"]
    asks = rule_words.asks(Requirement.of(required)) if required else ""
    if rule.get("same_call_unknown"):
        asks = f"{rule_words.SAME_CALL_UNKNOWN}: {asks}"
    return ShownRule(
        id=rule["id"],
        title=rule["title"],
        outcome=rule["outcome"],
        conditions=rule_words.conditions(rule["match"]),
        asks=asks,
        matches=matched.get(rule["id"], Matches()),
        budget=costs.get(rule["id"], Budget()),
    )


def _load_activations(rows: Any) -> list[Activation]:
    return list(
        rows.select_related("user", "policy_set").defer(*_LARGE_COLUMNS).order_by("-id")[:HISTORY]
    )


_LARGE_COLUMNS: Final = ("policy_set__text", "policy_set__rules")
