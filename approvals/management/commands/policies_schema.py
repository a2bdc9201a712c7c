"""`manage.py policies_schema`: print the JSON Schema of policies.yaml for editors."""

import json
from typing import Any

from django.core.management.base import BaseCommand

from approvals.policies.editor_schema import build_policies_schema


class Command(BaseCommand):
    """Print docs/policies.schema.json."""

    help = "Print the JSON Schema of policies.yaml (docs/policies.schema.json) for editors."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> str:
        return json.dumps(build_policies_schema(), indent=2, ensure_ascii=False)
