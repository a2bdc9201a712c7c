"""`manage.py load_policies FILE`: load a policy file; optionally activate it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts.management.project_option import add_project_option, require_project
from accounts.models import Project
from approvals.gates import statuses
from approvals.models import PolicySet
from approvals.policies import policies
from approvals.policies.policies_yaml import MAX_BYTES, DocumentError
from approvals.policies.staffing_check import find_understaffed_rules
from db.yaml_reader import read_yaml_file


class Command(BaseCommand):
    """Load the whole file or nothing."""

    help = (
        "Load rules from a YAML file (docs/examples/policies.yaml) as the next version under their "
        "name. --activate puts them in force: observe records their outcomes, enforce makes"
        " effects "
        "wait for approval."
    )
    requires_system_checks: list[str] = []  # the checks take half of the start-up time

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a policies.yaml")
        add_project_option(parser)
        parser.add_argument(
            "--activate", choices=statuses.POLICY_MODES, metavar="MODE", help="observe or enforce"
        )
        parser.add_argument(
            "--unless-active",
            action="store_true",
            help="do nothing if the project has an active policy",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        path, project = Path(options["file"]), require_project(options["project"])
        text = read_yaml_file(path, MAX_BYTES)
        with transaction.atomic(durable=True):
            if options["unless_active"] and policies.load_activation(project) is not None:
                return ""
            existing = policies.find_policy_set(project, text)
            try:
                policy_set = policies.load_policy_set(project, text)
            except DocumentError as fault:
                raise CommandError(
                    f"{path}:{fault.line}: {fault.sentence} Nothing was loaded."
                ) from fault
            rules = len(policy_set.rules["rules"])
            if existing is None:
                lines = [f"{project.name}: {policy_set} loaded, {rules} rules."]
            else:
                lines = [f"{project.name}: this text is already loaded as {policy_set}."]
            lines.append(activate_if_requested(project, policy_set, options["activate"]))
            lines += [
                f"Rule {rule}: {sentence}"
                for rule, sentence in find_understaffed_rules(project, policy_set.rules)
            ]
        return "\n".join(lines)


def activate_if_requested(project: Project, policy_set: PolicySet, mode: str | None) -> str:
    """Activate the set if a mode was given; report what is in force."""
    before = policies.load_activation(project)
    if mode is None:
        return (
            f"In force: {before.policy_set}, mode {before.mode}."
            if before
            else "No rules are in force."
        )
    after = policies.activate_policy_set(project, policy_set, mode)
    if before is not None and before.pk == after.pk:
        return f"{policy_set} was already in force in mode {mode}."
    replaced = f"; before: {before.policy_set}, mode {before.mode}" if before else ""
    return f"In force now: {policy_set}, mode {mode}{replaced}."
