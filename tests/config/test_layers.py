"""Apps know only those below them, also where a model's reverse relation would be an endpoint that no
import shows."""

import ast
from pathlib import Path

import pytest
from django.apps import apps

from tests.config.server import ROOT

BELOW = ("journal", "sessions", "ledger", "approvals")  # the lowest first


def reverse_names(app: str) -> set[str]:
    """What models of `app` and of those below it are given by the relations of apps above."""
    height = BELOW.index(app)
    found = set()
    for model in apps.get_models():
        home = model.__module__.partition(".")[0]
        if home not in BELOW[: height + 1]:
            continue
        for relation in model._meta.related_objects:
            above = relation.related_model.__module__.partition(".")[0]
            if above in BELOW and BELOW.index(above) > height:
                found |= {relation.get_accessor_name() or "", relation.name}
    return found - {"", "+"}


def names_in(path: Path) -> set[str]:
    """Attributes, keywords and words of texts that a lookup could be made of."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            found |= {node.arg, node.arg.partition("__")[0]}
    return found


@pytest.mark.parametrize("app", BELOW[:-1])
def test_no_app_reaches_up_through_a_reverse_relation(app: str) -> None:
    forbidden = reverse_names(app)
    assert forbidden if app != "journal" else True
    for path in (ROOT / app).rglob("*.py"):
        if "migrations" not in path.parts and "models" not in path.stem:
            assert not names_in(path) & forbidden, path.relative_to(ROOT)
