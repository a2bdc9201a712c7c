"""A word of each URL names the package of its view, and of its templates."""

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from tests.sources import ROOT

# The only routes to which no word of their URL leads. A new one needs a reason as good.
EXCEPTIONS: Final = {
    "healthz": "monitoring.health",  # probes know these three names
    "readyz": "monitoring.health",
    "metrics": "monitoring.health",
    "docs/": "config.docs_site.views",  # `docs` is the folder of the documents themselves
    "docs/api/": "api.views.openapi",
    "sign-out/": "django.contrib.auth.views",  # Django's own view
}
CONVERTER: Final = re.compile(r"<[^>]+>")
TEMPLATE: Final = re.compile(r'"([a-z_/]+\.html)"')


def walk_routes(urlconf: str) -> Iterator[tuple[str, str]]:
    """Yield each route with the module of its view."""

    def walk(resolver: URLResolver, start: str) -> Iterator[tuple[str, Any]]:
        for part in resolver.url_patterns:
            route = f"{start}{part.pattern}"
            if isinstance(part, URLPattern):
                yield route, part.callback
            else:
                yield from walk(part, route)

    for route, view in walk(get_resolver(urlconf), ""):
        yield route, find_module(view)


def find_module(view: Any) -> str:
    """Return the module of a view behind its decorators, of a class or of one HTTP method."""
    view = getattr(view, "view_class", None) or inspect.unwrap(view)
    if view.__module__ == "api.endpoint":
        methods = inspect.getclosurevars(view).nonlocals["endpoints"]
        (module,) = {find_module(method) for method in methods.values()}
        return module
    return str(view.__module__)


@cache
def list_folders(folder: str) -> frozenset[str]:
    return frozenset(path.stem for path in (ROOT / folder).iterdir())


def find_word(route: str, folder: str) -> str:
    """Return the word of a route that names the view's package, or its module in `views/`.

    It is the first word, not counting `settings`; below an object the last one that `folder` has.
    """
    first, *below = CONVERTER.split(route.replace("-", "_").replace(".json", ""))
    words = [word for word in first.split("/") if word and word != "settings"]
    last = [word for part in below for word in part.split("/") if word in list_folders(folder)]
    return [*(words or ["overview"])[:1], *last][-1]


def list_routes(urlconf: str, prefix: str) -> list[tuple[str, str]]:
    return [
        (route.removeprefix(prefix), module)
        for route, module in walk_routes(urlconf)
        if route.startswith(prefix) and route not in EXCEPTIONS
    ]


PAGES: Final = list_routes("config.urls", "")
ENDPOINTS: Final = list_routes("config.api_urls", "api/v1/")


@pytest.mark.once
@pytest.mark.parametrize(("route", "module"), PAGES, ids=[route for route, _ in PAGES])
def test_a_word_of_a_pages_url_names_its_package(route: str, module: str) -> None:
    word, parts = find_word(route, "pages"), module.split(".")
    if parts[0] == "pages":
        assert parts[1] == word
    else:
        # A package, one below `hooks`, or a module in the `views/` of accounts or approvals.
        assert word in (parts[0], parts[1], parts[-1])


@pytest.mark.once
def test_the_last_word_that_names_a_module_is_the_module_of_a_page() -> None:
    unlike = set()
    for route, module in PAGES:
        *folders, name = module.split(".")
        if not name.endswith("views"):  # in a folder `views` the word itself names the module
            continue
        parts = CONVERTER.split(route.replace("-", "_").replace(".json", ""))
        words = [word for part in parts for word in part.split("/")]
        named = [word for word in words if ROOT.joinpath(*folders, f"{word}_views.py").is_file()]
        if name != "_".join([*named[-1:], "views"]):
            unlike.add((route, module))
    assert unlike == set()


@pytest.mark.once
def test_a_word_of_an_endpoints_url_names_its_module() -> None:
    unlike = {
        (route, module)
        for route, module in ENDPOINTS
        if module != f"api.views.{find_word(route, 'api/views')}" and not route.startswith("hooks/")
    }
    assert unlike == set()
    assert {module.partition(".")[0] for route, module in ENDPOINTS if route[:6] == "hooks/"} == {
        "hooks"
    }


@pytest.mark.once
@pytest.mark.parametrize("module", sorted({module for _, module in PAGES}))
def test_the_templates_of_a_view_are_in_the_folder_of_its_package(module: str) -> None:
    parts = module.split(".")
    folder = "/".join(parts[: 2 if parts[0] in ("pages", "hooks") else 1])
    source = Path(inspect.getfile(import_module(module))).read_text()
    templates = TEMPLATE.findall(source)
    assert [template for template in templates if not template.startswith(f"{folder}/")] == []
    assert all((ROOT / "templates" / template).is_file() for template in templates)


@pytest.mark.once
def test_every_exception_is_a_route_and_breaks_the_rule() -> None:
    routes = dict(walk_routes("config.urls"))
    assert {route: routes.get(route) for route in EXCEPTIONS} == EXCEPTIONS
    for route, module in EXCEPTIONS.items():
        assert find_word(route, "pages") not in module.split(".")
