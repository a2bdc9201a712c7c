"""`manage.py load_policies FILE`: load a policy file; optionally activate it."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from approvals import policies, states
from approvals.answerable import unanswerable
from approvals.document import MAX_BYTES, DocumentError
from approvals.models import PolicySet
from sessions import projects
from sessions.models import Project


class Command(BaseCommand):
    """Load the whole file or nothing."""

    help = (
        "Load rules from a YAML file (docs/examples/policies.yaml) as the next version under their "
        "name. --activate puts them in force: observe records their outcomes, enforce makes"
        " effects "
        "wait for approval."
    )
    requires_system_checks: list[
        str
    ] = []  # the checks cover the code and take half of the start-up time

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a policies.yaml")
        parser.add_argument(
            "--project", default=projects.DEFAULT_NAME, metavar="NAME", help="default: %(default)s"
        )
        parser.add_argument(
            "--activate", choices=states.MODES, metavar="MODE", help="observe or enforce"
        )
        parser.add_argument(
            "--unless-active",
            action="store_true",
            help="do nothing if the project has an active policy",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        path, project = Path(options["file"]), project_named(options["project"])
        text = text_of(path)
        with transaction.atomic(durable=True):
            if options["unless_active"] and policies.current(project) is not None:
                return ""
            existing = policies.stored(project, text)
            try:
                policy_set = policies.load(project, text)
            except DocumentError as fault:
                raise CommandError(
                    f"{path}:{fault.line}: {fault.sentence} Nothing was loaded."
                ) from fault
            rules = len(policy_set.rules["rules"])
            if existing is None:
                lines = [f"{project.name}: {policy_set} loaded, {rules} rules."]
            else:
                lines = [f"{project.name}: this text is already loaded as {policy_set}."]
            lines.append(activated(project, policy_set, options["activate"]))
            lines += [
                f"Rule {rule}: {sentence}"
                for rule, sentence in unanswerable(project, policy_set.rules)
            ]
        return "\n".join(lines)


def activated(project: Project, policy_set: PolicySet, mode: str | None) -> str:
    """Activate the set if a mode was given; report what is in force."""
    before = policies.current(project)
    if mode is None:
        return (
            f"In force: {before.policy_set}, mode {before.mode}."
            if before
            else "No rules are in force."
        )
    after = policies.activate(project, policy_set, mode)
    if before is not None and before.pk == after.pk:
        return f"{policy_set} was already in force in mode {mode}."
    replaced = f"; before: {before.policy_set}, mode {before.mode}" if before else ""
    return f"In force now: {policy_set}, mode {mode}{replaced}."


def project_named(name: str) -> Project:
    """Return the project called `name`. Raises CommandError."""
    project = projects.named(name)
    if project is None:
        raise CommandError(f"There is no project {name!r}. Check --project.")
    return project


def text_of(path: Path) -> str:
    """Return the text of a policy file. Raises CommandError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CommandError(
                f"{path} is larger than {MAX_BYTES // 1024} KiB, the maximum of a policy file."
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text.") from error
