"""Apps use only lower apps, also through reverse relations of models, which no import shows."""

import ast
from pathlib import Path

import pytest
from django.apps import apps

from tests.config.server import ROOT

BELOW = ("journal", "sessions", "ledger", "approvals")  # the lowest first


def reverse_names(app: str) -> set[str]:
    """Return the reverse names that apps above give to models of `app` and lower apps."""
    height = BELOW.index(app)
    names = set()
    for model in apps.get_models():
        home = model.__module__.partition(".")[0]
        if home not in BELOW[: height + 1]:
            continue
        for relation in model._meta.related_objects:
            above = relation.related_model.__module__.partition(".")[0]
            if above in BELOW and BELOW.index(above) > height:
                names |= {relation.get_accessor_name() or "", relation.name}
    return names - {"", "+"}


def names_in(path: Path) -> set[str]:
    """Return attributes, keywords and words of strings that a lookup may contain."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            names |= {node.arg, node.arg.partition("__")[0]}
    return names


@pytest.mark.parametrize("app", BELOW[:-1])
def test_no_app_reaches_up_through_a_reverse_relation(app: str) -> None:
    forbidden = reverse_names(app)
    assert forbidden if app != "journal" else True
    for path in (ROOT / app).rglob("*.py"):
        if "migrations" not in path.parts and "models" not in path.stem:
            assert not names_in(path) & forbidden, path.relative_to(ROOT)
