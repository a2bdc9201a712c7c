"""An installation of its own with a fixed clock, an agent at its API, and people at its pages.

Only the API, the pages and the commands are used, so that the same lines fill other versions of
Gatebook. Names that differ between versions are grouped in names.json.
"""

import io
import json
import os
import random
import re
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import time_machine

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
PASSWORD = "slate-lantern-orbit-42"
_GROUPS: dict[str, list[list[str]]] = json.loads(
    (Path(__file__).parent / "names.json").read_text(encoding="utf-8")
)
_JULIAN_UNIX_EPOCH = 2440587.5


def name_variants(kind: str, name: str) -> list[str]:
    """Return `name` and the names that other versions have for it."""
    for group in _GROUPS[kind]:
        if name in group:
            return [name, *(other for other in group if other != name)]
    return [name]


def text_variants(text: str) -> list[str]:
    """Return `text` as it is, in the newest words, and in the oldest ones."""
    newest = oldest = text
    for group in _GROUPS["words"]:
        for word in group:
            newest = newest.replace(word, group[0])
            oldest = oldest.replace(word, group[-1])
    return list(dict.fromkeys([text, newest, oldest]))


@dataclass
class Clock:
    """The time that server, agents and people share; it only moves when a step is taken."""

    coordinates: Any

    def advance(self, **length: float) -> None:
        self.coordinates.shift(timedelta(**length))

    def now(self) -> datetime:
        return datetime.now(UTC)


@contextmanager
def open_installation(folder: Path) -> Iterator[Clock]:
    """Set Django up on a fresh installation in `folder`, and fix its clock and its random bytes."""
    generator = random.Random(11)
    for name in [name for name in os.environ if name.startswith(("DATABASE_", "GATEBOOK_"))]:
        del os.environ[name]
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # Playwright keeps an event loop in the thread
        "GATEBOOK_VAR": str(folder),
        "GATEBOOK_LOG_LEVEL": "ERROR",
        "GATEBOOK_WEBHOOK_HOSTS": "hooks.example",
    }
    os.urandom = generator.randbytes
    random._urandom = generator.randbytes  # type: ignore[attr-defined]
    uuid.uuid4 = lambda: uuid.UUID(bytes=generator.randbytes(16), version=4)
    with time_machine.travel(START, tick=False) as coordinates:
        import django
        from django.conf import settings
        from django.db.backends.signals import connection_created

        django.setup()
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
        settings.STORAGES = settings.STORAGES | {
            "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
        }
        settings.ALLOWED_HOSTS = ["*"]
        connection_created.connect(_fix_database_clock, weak=False)
        run_command("setup")
        yield Clock(coordinates)


def _fix_database_clock(connection: Any, **_: Any) -> None:
    """Let SQLite's `julianday` return the fixed time."""

    def julian_day(text: str) -> float:
        assert text == "now", text
        return datetime.now(UTC).timestamp() / 86_400 + _JULIAN_UNIX_EPOCH

    if isinstance(connection.connection, sqlite3.Connection):
        connection.connection.create_function("julianday", 1, julian_day)


def run_command(name: str, *arguments: str) -> str:
    """Run a management command and return what it prints."""
    from django.core.management import call_command, get_commands

    commands = get_commands()
    output = io.StringIO()
    command = next(variant for variant in name_variants("commands", name) if variant in commands)
    result = call_command(command, *arguments, stdout=output)
    return output.getvalue() or str(result or "")


def run_command_with_file(name: str, text: str, *arguments: str) -> None:
    """Run a command that loads a file with `text`, in the words that this version knows."""
    from django.conf import settings
    from django.core.management import CommandError

    path, errors = Path(settings.VAR_DIR) / "sample.yaml", []
    for variant in text_variants(text):
        path.write_text(variant, encoding="utf-8")
        try:
            run_command(name, str(path), *arguments)
        except CommandError as error:
            errors.append(str(error))
        else:
            return
    raise AssertionError(errors)


def url_of(name: str, *arguments: Any) -> str:
    """Return the URL of a page by the name that this version has for it."""
    from django.urls import NoReverseMatch, reverse

    for variant in name_variants("urls", name):
        try:
            return reverse(variant, args=arguments)
        except NoReverseMatch as error:
            missing = error
    raise missing


class AgentClient:
    """An agent's HTTP client below /api/v1, in the same process."""

    def __init__(self, clock: Clock, token: str) -> None:
        import httpx

        from config.wsgi import application

        self.clock, self.requests = clock, 0
        self.http = httpx.Client(
            base_url="http://127.0.0.1/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            transport=httpx.WSGITransport(app=application),
        )

    def post(self, path: str, body: Any = None, method: str = "POST") -> dict[str, Any]:
        """Send `body` as JSON and return the answer."""
        text, answers = json.dumps({} if body is None else body), []
        for variant in text_variants(f"{path} {text}"):
            path, _, text = variant.partition(" ")
            self.requests += 1
            self.clock.advance(seconds=1)
            headers = {
                "Idempotency-Key": f"key-{self.requests}",
                "Content-Type": "application/json",
            }
            response = self.http.request(method, path, content=text, headers=headers)
            if response.is_success:
                answer: dict[str, Any] = response.json()
                return answer
            answers.append(response.text)
        raise AssertionError((path, answers))

    def put_bytes(self, path: str, content: bytes) -> None:
        response = self.http.put(path, content=content)
        assert response.is_success, response.text

    def open_session(self, key: str, **fields: Any) -> dict[str, Any]:
        return self.post("/sessions", {"key": key, **fields})

    def plan(
        self, session: str, key: str, tool: str, arguments: Any, **fields: Any
    ) -> dict[str, Any]:
        body = {"session": session, "effect_key": key, "tool": tool, "arguments": arguments}
        return self.post("/effects", body | fields)

    def dispatch(self, effect: dict[str, Any], process: str = "worker-1") -> None:
        body = {"process": process, "intent_digest": effect["intent_digest"]}
        self.post(f"/effects/{effect['id']}/dispatch", body)

    def acknowledge(self, effect: dict[str, Any], **fields: Any) -> None:
        self.post(f"/effects/{effect['id']}/acknowledge", {"attempt": 1, "outcome": "ok", **fields})

    def fail(self, effect: dict[str, Any], reason: str, attempt: int = 1) -> None:
        self.post(f"/effects/{effect['id']}/fail", {"attempt": attempt, "reason": reason})


@dataclass
class Form:
    """A form of a page: where it goes, the fields as they are filled in, and its buttons."""

    action: str
    method: str
    fields: dict[str, list[str]] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    options: dict[tuple[str, str], str] = field(default_factory=dict)  # values by field and label


class FormReader(HTMLParser):
    """Read the forms of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.by_id: dict[str, Form] = {}
        self._form: Form | None = None
        self._select: tuple[Form, str] | None = None
        self._option: tuple[str | None, bool] | None = None
        self._textarea: tuple[Form, str] | None = None
        self._text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name, value = values.get("name") or "", values.get("value")
        if tag == "form":
            self._form = Form(values.get("action") or "", (values.get("method") or "get").lower())
            self.forms.append(self._form)
            self.by_id[values.get("id") or ""] = self._form
        form = self.by_id.get(values["form"] or "") if "form" in values else self._form
        if form is None:
            return
        if tag in ("input", "select", "textarea") and name and values.get("type") != "hidden":
            form.names.add(name)
        if tag == "input" and name:
            is_choice = values.get("type") in ("checkbox", "radio")
            if not is_choice or "checked" in values:
                form.fields.setdefault(name, []).append(value or ("on" if is_choice else ""))
        elif tag == "button":
            form.buttons.append((name, value or ""))
        elif tag == "select":
            self._select = form, name
        elif tag == "textarea":
            self._textarea, self._text = (form, name), ""
        elif tag == "option" and self._select:
            self._option, self._text = (value, "selected" in values), ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "textarea" and self._textarea:
            form, name = self._textarea
            form.fields[name] = [self._text.removeprefix("\n")]
            self._textarea = None
        elif tag == "option" and self._select and self._option:
            form, name = self._select
            chosen, is_selected = self._option
            label = " ".join(self._text.split())
            value = label if chosen is None else chosen
            form.options[name, label] = value
            if is_selected or name not in form.fields:
                form.fields[name] = [value]
            self._option = None
        elif tag == "select":
            self._select = None


class PersonClient:
    """A person's browser without scripts, signed in."""

    def __init__(self, clock: Clock, username: str) -> None:
        from django.contrib.auth.models import User
        from django.test import Client

        from accounts import people
        from accounts.models import Person

        self.clock, self.username = clock, username
        self.user = user = User.objects.get(username=username)
        people.change_own_password(user, PASSWORD)
        Person.objects.filter(user=user).update(password_given_at=None)
        self.client = Client()
        self.sign_in()

    def sign_in(self) -> None:
        """Begin a session of this browser; an idle one ends after half an hour."""
        from django.conf import settings

        self.client.force_login(self.user, settings.AUTHENTICATION_BACKENDS[-1])
        self.signed_in_at = self.clock.now()

    def load(self, url: str) -> str:
        """Return the text of a page."""
        if self.clock.now() - self.signed_in_at > timedelta(minutes=20):
            self.sign_in()
        response = self.client.get(url, follow=True)
        assert response.status_code < 400, (url, response.status_code)
        return response.content.decode()

    def submit(self, url: str, button: tuple[str, str] | None = None, **values: Any) -> str:
        """Fill in the form of a page that has these fields, press a button, return the last URL."""
        return self._fill_in(url, self.load(url), button, values)

    def _fill_in(
        self, url: str, text: str, button: tuple[str, str] | None, values: dict[str, Any]
    ) -> str:
        forms = FormReader(text.partition("<main")[2]).forms
        presses = [None] if button is None else [(button[0], v) for v in text_variants(button[1])]
        for press in presses:
            for form in forms:
                is_meant = set(values) <= form.names and (press is None or press in form.buttons)
                if form.method == "post" and is_meant:
                    return self._send(url, form, press, values)
        raise AssertionError((url, button, values, forms))

    def confirm(self, url: str) -> str:
        """Confirm the draft of a page with its code and the password, where it asks for them."""
        return self._confirm(url, self.load(url))

    def confirm_answer(self, url: str) -> str:
        """Confirm the page that answered the last form, if it asks for a password."""
        return self._confirm(url, self.answer) if 'name="password"' in self.answer else url

    def _confirm(self, url: str, text: str) -> str:
        code = re.search(r"Type <code>([^<]+)</code>", text)
        values = {"code": code[1]} if code else {}
        values |= {"password": PASSWORD} if 'name="password"' in text else {}
        return self._fill_in(url, text, None, values)

    def _send(
        self, url: str, form: Form, press: tuple[str, str] | None, values: dict[str, Any]
    ) -> str:
        self.clock.advance(seconds=5)
        fields = form.fields | {
            name: value if isinstance(value, list) else [form.options.get((name, value), value)]
            for name, value in values.items()
        }
        if press is not None:
            fields[press[0]] = [press[1]]
        response = self.client.post(form.action or url, fields, follow=True)
        self.answer = text = response.content.decode()
        refused = (
            response.status_code >= 400 or 'role="alert"' in text or 'class="errorlist' in text
        )
        assert not refused, (url, response.status_code, text.partition("<main")[2])
        chain = getattr(response, "redirect_chain", [])
        return str(chain[-1][0]) if chain else url
