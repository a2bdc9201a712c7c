"""`manage.py build_docs`: build the documentation site."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    """Build the site of this version."""

    help = "Build the documentation site into build/site/docs. Gatebook serves it at /docs/."
    requires_system_checks: list[str] = []

    def handle(self, **_options: Any) -> str:
        try:
            from config.docs_site.site_build import build_site
        except ModuleNotFoundError as missing:
            raise CommandError(f"{missing.name} is not installed. Run `make docs`.") from None
        from mkdocs.exceptions import Abort

        try:
            return f"{build_site()} is built. Restart Gatebook to serve it at /docs/."
        except Abort as failed:
            raise CommandError(f"The site was not built: {failed}") from None
