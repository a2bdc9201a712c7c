"""`manage.py load_policies FILE`: keeps the rules of a policies.yaml, and puts them in force when asked to."""

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
    """Load the whole file or nothing of it."""

    help = (
        "Load rules from a YAML file (docs/examples/policies.yaml) as the next version under their name. They are put "
        "in force only with --activate: observe records what they say, enforce holds effects for people."
    )
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

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
            help="change nothing where the project has rules in force",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        path, project = Path(options["file"]), project_named(options["project"])
        text = text_of(path)
        with transaction.atomic(durable=True):
            if options["unless_active"] and policies.current(project) is not None:
                return ""
            known = policies.stored(project, text)
            try:
                policy_set = policies.load(project, text)
            except DocumentError as fault:
                raise CommandError(
                    f"{path}:{fault.line}: {fault.sentence} Nothing was loaded."
                ) from fault
            rules = len(policy_set.rules["rules"])
            if known is None:
                lines = [f"{project.name}: {policy_set} loaded, {rules} rules."]
            else:
                lines = [f"{project.name}: this text is {policy_set} already; nothing was loaded."]
            lines.append(activated(project, policy_set, options["activate"]))
            lines += [
                f"Rule {rule}: {sentence}"
                for rule, sentence in unanswerable(project, policy_set.rules)
            ]
        return "\n".join(lines)


def activated(project: Project, policy_set: PolicySet, mode: str | None) -> str:
    """Activate where a mode was asked for, and say what is in force afterwards."""
    before = policies.current(project)
    if mode is None:
        return (
            f"In force: {before.policy_set}, mode {before.mode}."
            if before
            else "No rules are in force."
        )
    after = policies.activate(project, policy_set, mode)
    if before is not None and before.pk == after.pk:
        return f"{policy_set} was in force in mode {mode} already."
    replaced = f"; before it {before.policy_set}, mode {before.mode}" if before else ""
    return f"In force now: {policy_set}, mode {mode}{replaced}."


def project_named(name: str) -> Project:
    """The project called `name`. Raises CommandError."""
    project = projects.named(name)
    if project is None:
        raise CommandError(f"There is no project {name!r}.")
    return project


def text_of(path: Path) -> str:
    """The text of a file of rules. Raises CommandError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CommandError(
                f"{path} is larger than {MAX_BYTES // 1024} KiB, which no list of rules needs."
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text.") from error
