"""`manage.py check_recorded_plans FOLDER`: measure how often checks of requests warn.

It imports recorded sessions into the configured database, which must hold no others, treats every
plan as a request, and prints the share of plans with a result, by check and data set. Warnings on
recorded, ordinary work are false alarms.
"""

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from accounts import projects
from accounts.models import Project
from approvals.checks.checked_request import CheckedRequest, build_checked_request
from approvals.checks.run_checks import CHECKS, check_requests
from approvals.policies.engine import compute_risk
from journal import summaries
from journal.models import Body
from ledger.models import Effect
from ledger.names import name_index

# Folder of a data set -> its format for import_trajectory.
DATA_SETS: Final = {
    "claude-code-spotter": "claude-code",
    "intercode": "intercode",
    "mini-swe-agent": "mini-swe-agent",
    "openhands": "openhands",
    "pi-coding-agent": "pi",
    "swe-agent": "swe-agent",
    "tau-bench": "tau-bench",
}
PAGE: Final = 50  # requests that are checked together, as in the inbox
_PREFIX: Final = "recorded-"
_PLAN_CHARACTERS: Final = 16_384  # longer plans are not read by lists


@dataclass
class _Tally:
    """Plans of one data set, and plans with a warning or only a notice by check."""

    plans: int = 0
    warned: Counter[str] = field(default_factory=Counter)
    noticed: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, other: "_Tally") -> None:
        self.plans += other.plans
        self.warned += other.warned
        self.noticed += other.noticed


class Command(BaseCommand):
    """Import recorded sessions and count the plans for which each check has a result."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Import recorded sessions into an empty database and print how many plans each check of"
        " requests warns of."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "folder", metavar="FOLDER", type=Path, help="has a folder for each data set"
        )
        parser.add_argument(
            "--examples",
            action="store_true",
            help="print each result with its plan, to decide whether it is a false alarm",
        )

    def handle(self, *_args: Any, folder: Path, examples: bool, **_options: Any) -> None:
        if not folder.is_dir():
            self.stdout.write(f"{folder} does not exist; nothing is measured.")
            return
        if Effect.objects.exclude(project__name__startswith=_PREFIX).exists():
            raise CommandError("The database has other effects. Use an empty one.")
        for data_set, format_name in DATA_SETS.items():
            files = sorted((folder / data_set).glob("*.jsonl.gz"))
            if not files:
                continue
            project = _PREFIX + data_set
            if not Project.objects.filter(name=project).exists():
                projects.create_project(project)
            call_command("import_trajectory", format_name, *map(str, files), project=project)
        name_index.index_names()
        tallies = {
            data_set: _tally_project(Project.objects.get(name=_PREFIX + data_set))
            for data_set in DATA_SETS
            if Project.objects.filter(name=_PREFIX + data_set).exists()
        }
        if examples:
            for data_set, tally in tallies.items():
                for line in tally.examples:
                    self.stdout.write(f"{data_set}: {line}")
        self.stdout.write(_format_table(tallies))


def _tally_project(project: Project) -> _Tally:
    tally = _Tally()
    for requests in _iterate_pages(project):
        tally.plans += len(requests)
        by_gate = {request.gate: request for request in requests}
        for gate, results in check_requests(project.id, requests).items():
            warned = {result.check for result in results if result.is_warning}
            tally.warned.update(warned)
            tally.warned["any"] += bool(warned)
            noticed = {result.check for result in results} - warned
            tally.noticed.update(noticed)
            tally.noticed["any"] += bool(noticed)
            shown = summaries.summarize_arguments(by_gate[gate].arguments)
            tally.examples += [
                f"{result.level} {result.check}: {result.title} | {by_gate[gate].tool} {shown}"
                for result in results
            ]
    return tally


def _iterate_pages(project: Project) -> Iterator[list[CheckedRequest]]:
    """Yield all planned effects of a project as requests, in pages, in the order of the journal."""
    effects = Effect.objects.filter(project=project, plan_position__isnull=False)
    ordered = effects.select_related("repository").order_by("opened_position")
    last = 0
    while page := list(ordered.filter(opened_position__gt=last)[:PAGE]):
        last = page[-1].opened_position
        bodies = dict(
            Body.objects.filter(entry__in=[effect.plan_position for effect in page]).values_list(
                "entry_id", "text"
            )
        )
        yield [_build_request(effect, bodies.get(effect.plan_position or 0, "")) for effect in page]


def _build_request(effect: Effect, text: str) -> CheckedRequest:
    """Build the request that a policy would have made of a planned effect."""
    plan = summaries.parse_body(text) if len(text) <= _PLAN_CHARACTERS else {}
    gate = SimpleNamespace(
        id=effect.id,
        effect_id=effect.id,
        session_id=effect.session_id,
        agent_id=effect.agent_id,
        opened_position=effect.plan_position,
        plan_position=effect.plan_position,
        requested_at_us=effect.received_us,
        tool=effect.tool,
        repository_name=effect.repository.name if effect.repository is not None else "",
        reversibility="irreversible",
        risk=compute_risk("irreversible", effect.environment, effect.ref_class, declared=False),
        policy_set_id=None,
        rule="",
    )
    return build_checked_request(gate, effect, plan)


def _format_table(tallies: dict[str, _Tally]) -> str:
    """Return one line for each check and data set with results, and the total of each check."""
    total = _Tally()
    for tally in tallies.values():
        total.add(tally)
    lines = [
        f"{'check':<24} {'data set':<20} {'plans':>6} {'warned':>7} {'share':>8} {'noticed':>8}"
    ]
    for check in (*CHECKS, "any"):
        for data_set, tally in tallies.items():
            if tally.warned[check] or tally.noticed[check]:
                lines.append(_format_row(check, data_set, tally))
        lines.append(_format_row(check, "all", total))
    return "\n".join(lines)


def _format_row(check: str, data_set: str, tally: _Tally) -> str:
    share = 100 * tally.warned[check] / max(tally.plans, 1)
    return (
        f"{check:<24} {data_set:<20} {tally.plans:>6,} {tally.warned[check]:>7,} {share:>7.2f}%"
        f" {tally.noticed[check]:>8,}"
    )
