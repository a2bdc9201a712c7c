"""Headers, cookies, end of a sign-in, keys, logs, and handlers of paths."""

import io
import json
import logging
import os
import secrets
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
import time_machine
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils import timezone
from psycopg_pool import PoolTimeout

from accounts.sign_in_store import SessionStore
from config import secret_keys
from config.logging import JSONFormatter
from config.urls import urlpatterns as real_patterns
from tests.config.server import ROOT
from tests.rows_with_entries import close_accounts, mark_own_password


def who(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.user.get_username())


def no_connection(request: HttpRequest) -> HttpResponse:
    raise OperationalError("couldn't get a connection after 2.00 sec") from PoolTimeout()


def locked(request: HttpRequest) -> HttpResponse:
    raise OperationalError("database is locked: waited 20 s for the turn to write")


def lost(request: HttpRequest) -> HttpResponse:
    raise OperationalError("the connection is lost") from psycopg.OperationalError(
        "the connection is lost"
    )


def ended(request: HttpRequest) -> HttpResponse:
    raise OperationalError("terminating connection") from psycopg.errors.AdminShutdown(
        "terminating connection"
    )


def wrong(request: HttpRequest) -> HttpResponse:
    raise OperationalError("no such table") from sqlite3.OperationalError("no such table")


urlpatterns = [
    path("who", who),
    path("no-connection", no_connection),
    path("locked", locked),
    path("lost", lost),
    path("ended", ended),
    path("wrong", wrong),
    *real_patterns,
]
handler500 = "accounts.views.errors.server_error"

CSP = {
    "default-src 'none'",
    *(
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
    ),
    *("font-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"),
}


@pytest.mark.urls(__name__)
@pytest.mark.django_db
def test_every_answer_forbids_framing_foreign_code_and_caches() -> None:
    for url in ("/who", "/nothing-here", "/healthz"):
        answer = Client().get(url)
        assert set(answer["Content-Security-Policy"].split("; ")) == CSP, url
        assert answer["X-Frame-Options"] == "DENY"
        assert answer["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Cache-Control"] == "private, no-store"


@pytest.fixture
def person(db: None) -> Client:
    client = Client()
    carol = User.objects.create_user("carol")
    mark_own_password(carol)
    client.force_login(carol)
    return client


@pytest.mark.urls(__name__)
def test_a_sign_in_ends_after_thirty_idle_minutes_and_not_before(person: Client) -> None:
    with time_machine.travel(0, tick=False) as clock:
        person.force_login(User.objects.get())
        clock.shift(30 * 60)
        assert person.get("/who").content == b"carol"
        clock.shift(30 * 60)
        assert person.get("/who").content == b"carol"
        clock.shift(30 * 60 + 1)
        assert person.get("/who").content == b""
        clock.shift(-60)
        assert person.get("/who").content == b"", "the sign-in is forgotten, not merely hidden"


@pytest.mark.urls(__name__)
def test_a_sign_in_ends_after_twelve_hours_however_busy(person: Client) -> None:
    with time_machine.travel(0, tick=False) as clock:
        person.force_login(User.objects.get())
        for _ in range(48):
            clock.shift(15 * 60)
            assert person.get("/who").content == b"carol"
        clock.shift(15 * 60)
        assert person.get("/who").content == b""


@pytest.mark.urls(__name__)
def test_reading_pages_writes_the_clock_at_most_once_a_minute(
    person: Client, django_assert_num_queries: Callable[[int], Any]
) -> None:
    person.get("/who")
    with django_assert_num_queries(
        3
    ):  # the session, memberships (of which there are none), and so the user alone
        person.get("/who")


@pytest.mark.urls(__name__)
def test_a_disabled_user_is_signed_out_at_once(person: Client) -> None:
    assert person.get("/who").content == b"carol"
    close_accounts(User.objects.all())
    assert person.get("/who").content == b""


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("url", ["/no-connection", "/locked"])
def test_a_page_with_a_full_database_is_503_with_retry_after(url: str) -> None:
    answer = Client().get(url)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert b"Nothing was recorded" in answer.content


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("url", ["/lost", "/ended"])
def test_a_page_whose_database_went_away_states_that_the_outcome_is_unknown(url: str) -> None:
    answer = Client().get(url)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert b"may or may not be recorded" in answer.content
    assert b"<h1>Gatebook is temporarily unavailable</h1>" in answer.content
    part = Client().get(url, headers={"HX-Request": "true"})
    assert part["Content-Type"] == "text/plain; charset=utf-8"
    assert b"may or may not be recorded" in part.content


@pytest.mark.urls(__name__)
def test_a_stored_sign_in_ends_at_its_expiry(person: Client) -> None:
    assert person.get("/who").content == b"carol"
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert person.get("/who").content == b""


@pytest.mark.urls(__name__)
def test_another_fault_of_the_database_is_no_matter_of_time() -> None:
    answer = Client(raise_request_exception=False).get("/wrong")
    assert answer.status_code == 500
    assert "Retry-After" not in answer


@pytest.mark.urls(__name__)
def test_a_sign_in_that_cannot_be_read_now_is_not_a_fault_and_not_ended(
    person: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(SessionStore, "load", lambda _self: no_connection(HttpRequest()))
        person.raise_request_exception = False
        answer = person.get("/who")
        assert (answer.status_code, answer["Retry-After"]) == (503, "2")
        assert b"Nothing was recorded" in answer.content
    assert person.get("/who").content == b"carol"


def settings_under(tmp_path: Path, expression: str, **environment: str) -> Any:
    """Return the value of `expression` on the settings of a new process."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import json; from config import settings; print(json.dumps({expression}))",
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "", "GATEBOOK_VAR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


COOKIES = (
    "[settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME, settings.SESSION_COOKIE_SECURE]"
)


def test_cookies_are_bound_to_the_host_over_https_and_plain_without(tmp_path: Path) -> None:
    assert settings_under(tmp_path, COOKIES) == ["gatebook", "gatebook-csrf", False]
    assert settings_under(tmp_path, COOKIES, GATEBOOK_HTTPS="1") == [
        "__Host-gatebook",
        "__Host-gatebook-csrf",
        True,
    ]


def test_only_this_machine_is_answered_unless_hosts_are_named(tmp_path: Path) -> None:
    hosts = "settings.ALLOWED_HOSTS"
    assert settings_under(tmp_path, hosts) == ["localhost", "127.0.0.1", "[::1]"]
    assert settings_under(tmp_path, hosts, GATEBOOK_HOSTS="gatebook.example, b.example")[3:] == [
        "gatebook.example",
        "b.example",
    ]


def test_no_process_stores_keys_by_itself_and_stored_keys_are_private(
    tmp_path: Path,
) -> None:
    both = "[settings.SECRET_KEY, settings.GATEBOOK_PEPPER.hex()]"
    assert settings_under(tmp_path, both) != settings_under(tmp_path, both)
    assert not (tmp_path / "keys").exists()
    assert settings_under(tmp_path, "sorted(settings.GATEBOOK_NEW_KEYS)") == [
        "pepper",
        "secret_key",
    ]
    for name, key in secret_keys.load_keys(tmp_path / "keys", {})[1].items():
        secret_keys.store_key(tmp_path / "keys", name, key)
    first = settings_under(tmp_path, both)
    assert first == settings_under(tmp_path, both)
    assert settings_under(tmp_path, "sorted(settings.GATEBOOK_NEW_KEYS)") == []
    assert first[0] != first[1]
    for name in ("secret_key", "pepper"):
        assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    given = settings_under(
        tmp_path, both, GATEBOOK_PEPPER="a long phrase of more than thirty-two bytes"
    )
    assert bytes.fromhex(given[1]) == b"a long phrase of more than thirty-two bytes"


def test_the_folder_of_database_and_artifacts_is_closed_to_others(tmp_path: Path) -> None:
    var = tmp_path / "parent" / "var"
    assert settings_under(var, "str(settings.MEDIA_ROOT)") == str(var / "artifacts")
    assert stat.S_IMODE(var.stat().st_mode) == 0o700


def test_processes_that_start_together_get_one_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    threads = [
        threading.Thread(
            target=lambda: keys.append(
                secret_keys.store_key(tmp_path / "keys", "pepper", secrets.token_bytes(48))
            )
        )
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    assert len(keys) == 16
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["pepper"], (
        "no half-written file is left"
    )


def test_a_short_key_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match="GATEBOOK_PEPPER is too short") as caught:
        secret_keys.decode_key("hunter2", "GATEBOOK_PEPPER")
    assert "hunter2" not in str(caught.value)


HOSTILE = "a\r\n{}\x1b[31m\x7f\x9b\u202e\u2028end"


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"headers": {"host": "evil.example"}},
            "the host evil.example. GATEBOOK_HOSTS does not list it.",
        ),
        ({"headers": {"host": "a b/@\n\x1b"}}, "GATEBOOK_HOSTS does not list it."),
        (
            {"method": "POST", "data": b"x", "content_type": "multipart/form-data"},
            "Unable to parse request body",
        ),
        (
            {"method": "POST", "data": "&".join(f"a{n}=" for n in range(1001))},
            "DATA_UPLOAD_MAX_NUMBER_FIELDS",
        ),
        ({"method": "POST", "data": b"x" * (4 * 1024 * 1024 + 1)}, "DATA_UPLOAD_MAX_MEMORY_SIZE"),
    ],
    ids=["host", "no host at all", "no form", "too many fields", "too large"],
)
def test_a_request_that_is_answered_400_leaves_one_line_and_no_traceback(
    options: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    (handler,) = (
        candidate
        for candidate in logging.getLogger("django").handlers
        if isinstance(candidate.formatter, JSONFormatter)
    )
    assert isinstance(handler, logging.StreamHandler)
    monkeypatch.setattr(handler, "stream", stream)
    form = {"content_type": "application/x-www-form-urlencoded"} if "data" in options else {}
    method = options.pop("method", "GET")
    answer = Client(raise_request_exception=False).generic(
        method, "/sign-in/", **{**form, **options}
    )
    assert answer.status_code == 400
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert sentence in record["event"]
    assert record["level"] == "warning"
    assert "exception" not in record


@pytest.mark.parametrize("by", ["structlog", "logging", "exception"])
def test_a_log_line_is_one_line_without_control_characters(by: str) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    logger = logging.getLogger("gatebook.test")
    logger.addHandler(handler)
    try:
        if by == "structlog":
            structlog.get_logger("gatebook.test").warning(
                "event", path=HOSTILE, agent={HOSTILE: [HOSTILE]}
            )
        elif by == "logging":
            logger.warning("Not Found: %s", HOSTILE)
        else:
            try:
                raise ValueError(HOSTILE)
            except ValueError:
                logger.exception("failed")
    finally:
        logger.removeHandler(handler)
    (line,) = stream.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["logger"] == "gatebook.test"


def test_an_exception_is_logged_by_type_places_and_start_of_its_message() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    logger = logging.getLogger("gatebook.test")
    logger.addHandler(handler)
    try:
        try:
            try:
                raise KeyError("k" * 300)
            except KeyError as error:
                raise OperationalError(
                    "a row was refused\nDETAIL:  Failing row contains (hunter2)"
                ) from error
        except OperationalError:
            logger.exception("failed")
    finally:
        logger.removeHandler(handler)
    refused, cause = json.loads(stream.getvalue())["exception"]
    assert (refused["type"], refused["message"]) == (
        "django.db.utils.OperationalError",
        "a row was refused",
    )
    assert (cause["type"], cause["message"]) == ("builtins.KeyError", "'" + "k" * 199)
    assert refused["at"][-1].endswith(
        "test_an_exception_is_logged_by_type_places_and_start_of_its_message"
    )
    assert "hunter2" not in stream.getvalue()


def served(path: str) -> tuple[str, dict[str, str], bytes]:
    """Return the answer of config.wsgi to a GET of `path`, with cookies."""
    from config.wsgi import application

    seen: list[Any] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.url_scheme": "http",
    }
    body = b"".join(application(environ, lambda *arguments: seen.append(arguments)))
    return seen[0][0], dict(seen[0][1]), body


@pytest.mark.django_db
def test_agents_pass_by_the_middleware_and_people_do_not() -> None:
    _, agents, _ = served("/api/nowhere")
    _, people, _ = served("/nowhere")
    assert "Content-Security-Policy" not in agents
    assert "Content-Security-Policy" in people


@pytest.mark.django_db
def test_readiness_is_reported_in_plain_text() -> None:
    from django.db import connection

    assert Client().get("/healthz").content == b"ok\n"
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.content) == (200, b"ready\n")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    with connection.cursor() as cursor:
        table = " ON journal_entry" if connection.vendor == "postgresql" else ""
        cursor.execute(f"DROP TRIGGER journal_entry_never_changes{table}")
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.content == b"not ready: database triggers are missing; run `manage.py migrate`\n"
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'journal'")
    assert b"not migrated" in Client().get("/readyz").content


def test_the_versions_that_carry_security_fixes_are_in_use() -> None:
    import django

    assert django.VERSION >= (5, 2, 19)
