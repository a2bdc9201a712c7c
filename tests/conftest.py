"""Fixtures of every test. The suite runs on DATABASE_URL, by default SQLite.

`live_server_process` is the real server on its own database; `browser_page` and `new_page` are a
real browser. A missing browser is a failure, not a skip.
"""

import gc
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.core import management
from django.db import connection
from django.template.base import Template
from django.urls import set_urlconf
from hypothesis.internal.conjecture import providers
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django import DjangoDbBlocker, Settings

import recovery  # first, or tests/recovery takes its name
import shell  # as above
from config import secret_keys
from tests.config.row_snapshot import Kept
from tests.config.server import Server, serve
from tests.forked_workers import GROUP
from tests.forked_workers import pytest_addoption as pytest_addoption
from tests.forked_workers import pytest_runtestloop as pytest_runtestloop
from tests.matrices import count_examples, load_sqlite_files
from tests.pages.people import Organization, build

# Playwright's synchronous API keeps an event loop in the thread for the rest of the run, and Django
# would then refuse the ORM in every later test of the same process.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

assert recovery.__file__  # the product's package
assert shell.__file__
ROOT = Path(__file__).resolve().parent.parent

# Programs that tests start import the client from its source folder, as the tests do.
_CLIENT = str(ROOT / "client")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_CLIENT, os.environ.get("PYTHONPATH")]))

# Two busy cores are slow now and then; that is no fault of the code under test. A failure has a
# cause in the change: the examples are the same in every run.
# `--hypothesis-profile=random` searches other examples.
hypothesis.settings.register_profile(
    "random",
    max_examples=count_examples(40, 100),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.register_profile(
    "fixed", hypothesis.settings.get_profile("random"), derandomize=True
)
hypothesis.settings.load_profile("fixed")

# The clients of tests log every request, which takes longer than answering many of them.
logging.getLogger("httpx").setLevel(logging.WARNING)

# A test without one of these fixtures or the mark `django_db` cannot use the database.
DATABASE_FIXTURES = {"db", "transactional_db", "live_server_process"}
_RENDER: Any = Template._render  # type: ignore[attr-defined]  # before Django replaces it
# Timeouts of a browser and of a page's database query, long enough for a busy machine.
PATIENT_S = 60.0
FOLDERS_OF_PROGRAMS = {"client", "evaluation", "config"}
# Started late, one of these would run alone after all other workers have ended.
LONGEST_FILES = {
    *("test_t0.py", "test_bench.py", "test_make_demo.py", "test_supervisor.py"),
    *("test_operating_recipes.py", "test_database_restart.py", "test_schemathesis.py"),
    *("test_browser_inquiry.py", "test_inbox_browser.py", "test_every_page_browser.py"),
    "test_who_may_speak.py",
    *("test_garbled_forms.py", "test_answers.py", "test_moments.py", "test_offers.py"),
    *("test_convergence.py", "test_import_trajectory.py", "test_mcp_proxy.py", "test_roles.py"),
    *("test_classes.py", "test_waiting.py", "test_database_faults.py", "test_follow.py"),
    *("test_crash.py", "test_span_decoders.py", "test_search_that_takes_too_long.py"),
}
# They start a browser, like every file with "browser" in its name.
FILES_WITH_A_BROWSER = {
    *("test_history_ages.py", "test_real_server.py", "test_sample_project.py", "test_visual.py"),
    "test_site.py",  # shares the built documentation with test_site_browser.py
}
# The headless shell is the same engine without windows and needs half of the processor time.
BROWSERS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
BROWSER_ARGUMENTS = [
    # One process renders every page: each new one would start with half a second of a processor.
    *("--renderer-process-limit=1", "--disable-site-isolation-trials"),
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def pytest_configure(config: pytest.Config) -> None:
    """Set shared settings, make the folder of SQLite's test files and remove files of killed runs."""
    from django.conf import settings

    gc.disable()  # until the tests are collected: what is imported and collected stays
    # Child processes in folders of this run need its keys, like the other test workers.
    stored = {
        name: secret_keys.store_key(settings.VAR_DIR / "keys", name, key)
        for name, key in settings.GATEBOOK_NEW_KEYS.items()
    }
    settings.GATEBOOK_PEPPER = stored.get("pepper", settings.GATEBOOK_PEPPER)
    settings.SECRET_KEY = (
        stored["secret_key"].hex() if "secret_key" in stored else settings.SECRET_KEY
    )
    settings.GATEBOOK_SEARCH_TIMEOUT_S = PATIENT_S  # tests of the limit set another value
    # Pages in tests need no collectstatic.
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    folder = settings.VAR_DIR / "test"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        process = path.name.partition(".")[0]
        if not process.isdigit() or not Path(f"/proc/{process}").exists():
            path.unlink(missing_ok=True)


def pytest_sessionstart() -> None:
    """Make examples independent of the tests before them, which differ from run to run.

    Hypothesis takes one value in twenty from constants of the modules loaded so far, even with
    derandomized examples.
    """
    if hypothesis.settings().derandomize:
        providers._get_local_constants = lambda: (
            providers._local_constants
        )  # empty, because none was searched yet


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that do not use the configured database: a run on another one adds nothing.

    The browser and the client are marked as well: other tests cover what pages and endpoints read
    from each database.

    `make test-matrices` alone runs files of sqlite_in_core.txt on PostgreSQL, and it repeats every
    property with more examples.

    The longest files come first, then those that start programs: workers that end with short files
    end together.
    """
    long, on_sqlite = set(), load_sqlite_files()
    for item in items:
        kept = on_sqlite.get(item.path.relative_to(ROOT).as_posix())
        if kept is not None and getattr(item, "originalname", None) not in kept:
            item.add_marker(pytest.mark.matrix_on_postgresql)
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.deepened)
        fixtures = set(getattr(item, "fixturenames", ()))
        meets = item.get_closest_marker("django_db") or fixtures & DATABASE_FIXTURES
        if not meets or item.get_closest_marker("browser") or item.path.parent.name == "client":
            item.add_marker(pytest.mark.once)
        item.stash[GROUP] = _name_group(item.path)
        if "live_server_process" in fixtures or item.path.parent.name in FOLDERS_OF_PROGRAMS:
            long.add(item.path)
    items.sort(key=lambda item: (item.path.name not in LONGEST_FILES, item.path not in long))


@cache
def _name_group(file: Path) -> str:
    """Return a name that is the same for the files that run in one worker.

    Those are all with a browser and all with a server: each other worker would start its own. Files
    that read the whole source go to one worker too, which reads it once.
    """
    text = file.read_text(encoding="utf-8")
    if "browser" in file.name or file.name in FILES_WITH_A_BROWSER:
        return "browser"
    if "tests.sources" in text:
        return "sources"
    return "server" if "live_server_process" in text else str(file)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, and collect less often."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """Start from a copy of the schema that tests/run_suite.py made. On PostgreSQL Django copies the
    template from the settings, and migrates: triggers there have a digest under this run's key."""
    from django.conf import settings

    test, kept = settings.DATABASES["default"]["TEST"], os.environ.get("TESTS_TEMPLATE")
    # Races of many threads share fewer connections; no test measures the wait for a connection.
    if pool := settings.DATABASES["default"]["OPTIONS"].get("pool"):
        pool["timeout"] = 60
    if kept and settings.DATABASES["default"]["ENGINE"] != "db.sqlite":
        test["TEMPLATE"] = kept
    elif kept and Path(kept).exists():
        shutil.copy(kept, test["NAME"])
        # To find that there is nothing to migrate takes two seconds of a processor.
        _NO_COMMANDS.setattr(management, "call_command", lambda *_, **__: None)


_NO_COMMANDS = pytest.MonkeyPatch()


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb: bool) -> bool:
    """Keep SQLite's copy: Django removes an existing file otherwise."""
    kept = os.environ.get("TESTS_TEMPLATE")
    return django_db_keepdb or bool(kept and Path(kept).exists())


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Keep PostgreSQL from counting the rows of tables whose rows are all rolled back.

    Its autovacuum runs during the tests and counts no rows. The planner then joins rows of a test by
    nested loops, which took minutes.
    """
    _NO_COMMANDS.undo()
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT oid::regclass FROM pg_class WHERE relkind = 'r'"
                " AND relnamespace = 'public'::regnamespace"
            )
            for (table,) in cursor.fetchall():  # partitions too: a vacuum locks them for seconds
                cursor.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")


@pytest.fixture(scope="session", autouse=True)
def _plain_templates(django_test_environment: None) -> None:
    """Render templates as the product does. Django's test environment copies the context of each
    template that a page includes, which no test reads."""
    Template._render = _RENDER  # type: ignore[attr-defined]  # Django's own, unannotated


@pytest.fixture(autouse=True)
def _own_files(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep files that tests write out of the installation's folder."""
    # A new folder for each test, because projects have the same ids and files are named by hash.
    folder = tmp_path_factory.getbasetemp()
    settings.MEDIA_ROOT = folder / "artifacts" / uuid.uuid4().hex
    settings.GATEBOOK_ERASURE_JOURNAL = folder / "erasures" / uuid.uuid4().hex


@pytest.fixture(autouse=True)
def _no_documentation_site(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Hide the documentation site that `make run` has built: without it `/docs/` says so."""
    from config.docs_site import site_files

    monkeypatch.setattr(site_files, "DOCS_FOLDER", tmp_path_factory.getbasetemp() / "no-site")


@pytest.fixture(autouse=True)
def _one_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent a change of the hour, after which a repeated page view is recorded again."""
    from display import access_log

    monkeypatch.setattr(access_log, "HOUR_US", 10**18)


@pytest.fixture(autouse=True)
def _sign_in_limits() -> Iterator[None]:
    """Reset the URLconf: an aborted request leaves the thread with the URLs of the API."""
    yield
    set_urlconf(None)


_HOUSE = Kept[Organization]()


@pytest.fixture
def organization(db: None, settings: Settings) -> Organization:
    """Two projects and their people, with a fast password hasher."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return _HOUSE.again(build)


@pytest.fixture(scope="session")
def live_server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The real server (config.http_server, config.wsgi) as a child for the run, on its own
    database."""
    with serve(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium: that of the system, otherwise that of `playwright install chromium`."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    expect.set_options(timeout=PATIENT_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=BROWSER_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Make a page in a fresh context; keyword arguments go to `browser.new_context` (color_scheme,
    viewport, …)."""
    with ExitStack() as stack:

        def make(**options: Any) -> Page:
            # Colours are not checked during a transition.
            still = {"viewport": {"width": 1280, "height": 720}, "reduced_motion": "reduce"}
            context = browser.new_context(**{**still, **options})
            context.set_default_timeout(PATIENT_S * 1000)
            stack.callback(context.close)
            return context.new_page()

        yield make


@pytest.fixture
def browser_page(new_page: Callable[..., Page]) -> Page:
    """A page of 1280 by 720 in a fresh context."""
    return new_page()
