"""`manage.py policies_schema`: prints the JSON schema of the rules, for editors."""

import json
from typing import Any

from django.core.management.base import BaseCommand

from approvals.schema import schema


class Command(BaseCommand):
    """Print docs/policies.schema.json."""

    help = "Print the JSON schema of policies (docs/policies.schema.json), by which editors complete and check."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> str:
        return json.dumps(schema(), indent=2, ensure_ascii=False)
