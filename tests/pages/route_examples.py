"""An example of everything that a URL can name: `write_examples` fills one project with them.

It runs in the process of a server, like a management command: the sample project, a session with
effects in every state, and an object of each kind that people make in the settings.
"""

import hashlib
import hmac
import json
import re
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse

from accounts import invitations, people, tokens
from accounts.models import (
    Agent,
    AgentToken,
    Invitation,
    Membership,
    Project,
    Repository,
    Team,
)
from approvals.models import Exemption, Gate, PolicySet
from erasure.models import ErasureRequest, LegalHold
from hooks.code_hosts import agent_identities, sources
from hooks.models import CodeHostDelivery
from investigation.models import Export, ImportedGate, Incident, IncidentMember, SavedQuery
from ledger.models import Effect, Stop
from notifications.models import NotificationChannel
from pages.first_steps import client_wheel
from pages.sample.sample_project import load_sample
from retention import retention_sets
from tests.api.api_client import Caller
from tests.hooks.code_hosts.code_host import build_push
from tests.pages.people import PASSWORD, signed_in
from tests.pages.sample_data import SampleIds, fill, permission
from tests.visual.installation import FormReader

READER, IMPORTER, NEWCOMER = "tour-reader", "tour-importer", "tour-newcomer"
RETENTION = """\
name: tour
classes: [{name: short, keep: 30 days}]
rules:
  - {class: short, kind: effect.planned}
"""
HOST = {"headers": {"host": "127.0.0.1"}}
REASON = "An example for the tour of all pages."


def write_examples() -> dict[str, Any]:
    """Write the examples; return the sign-in cookies by person, and the ids by name."""
    home = Project.objects.get(name="default")
    for name in (READER, IMPORTER, NEWCOMER):
        with transaction.atomic():
            people.create_user(home, name, PASSWORD, actor="tests")
            people.change_own_password(User.objects.get(username=name), PASSWORD)
    reader = User.objects.get(username=READER)
    project = load_sample(reader, routine_days=1)
    reader.refresh_from_db()
    caller = _open_agent(project)
    sample = fill(caller, ".x")  # so that no rule names its tools
    permission(caller, sample, ".x")
    ids: dict[str, Any] = {
        "session": sample.session,
        "other": sample.child,
        "task": sample.task,
        "artifact": sample.artifact,
        "effect": sample.effects["ok"],
        "position": Effect.objects.get(id=sample.effects["ok"]).plan_position,
        "compensated": sample.effects["compensated"],
        "rejected": sample.effects["rejected"],
        "number": 1,
        "level": 0,
        "name": "000",  # of a tile
        "file_name": client_wheel.build_client_wheel().file_name,
        "code": hashlib.sha256(b"tour").hexdigest(),
    }
    pending = Gate.objects.filter(project=project, status="pending").order_by("id")
    ids["gate"], ids["drafted"] = pending.values_list("id", flat=True)[:2]
    ids["decided"] = Gate.objects.filter(project=project, status="used").values_list("id")[0][0]
    ids["exemption"] = Exemption.objects.filter(project=project).values_list("id")[0][0]
    ids["person"] = User.objects.get(username="sample-rita").pk
    ids |= _write_settings(project, caller)
    ids |= _write_investigation(project, sample)
    for command in ("update_search_index", "run_exports", "run_erasures", "seal_journal"):
        call_command(command)
    for _ in range(2):
        call_command("sweep_stuck")
    cookies = {name: signed_in(name) for name in (READER, IMPORTER, NEWCOMER)}
    browser = _open_browser(cookies[READER])  # drafts belong to a sign-in
    board = unescape(browser.get(reverse("stuck")).content.decode())
    care = re.search(r'"/stuck/(\w+)/([0-9a-f-]{36})/\?do=snooze', board)
    assert care, "nothing is stuck"
    ids["rule"], ids["subject"] = care.groups()
    ids |= _write_drafts(browser, ids, sample) | _import_bundle(project)
    return {"cookies": cookies, "ids": {name: str(value) for name, value in ids.items()}}


def _open_browser(cookie: str = "") -> Client:
    client = Client(**HOST)  # type: ignore[arg-type]
    client.cookies[settings.SESSION_COOKIE_NAME] = cookie or signed_in(READER)
    return client


def _open_agent(project: Project) -> Caller:
    from config.wsgi import application

    agent = Agent.objects.get(project=project, name="deploy-bot")
    with transaction.atomic():
        token = tokens.issue_token(agent, expires_in=None, actor="tests")
    return Caller(token, app=application)


def _write_settings(project: Project, caller: Caller) -> dict[str, Any]:
    """Write what people make in the settings; one page each, but for what needs a secret."""
    browser = _open_browser()
    agent = Agent.objects.get(project=project, name="code-fixer")
    with transaction.atomic():
        invitations.invite_person(project, NEWCOMER, "viewer", actor="tests")
        tokens.issue_token(agent, expires_in=None, actor="tests")
        retention = retention_sets.load_retention_set(project, RETENTION)
        identity = agent_identities.add_identity(agent, "github", "release-bot", actor="tests")
        source = sources.add_source(project, "github", "acme", actor="tests")
    secret = sources.derive_source_secret(source.id, source.secret_generation)
    body = json.dumps(build_push()).encode()
    delivered = caller.raw(
        f"/hooks/github/{source.id}",
        body,
        X_GitHub_Event="push",
        X_GitHub_Delivery="tour",
        X_Hub_Signature_256=f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}",
    )
    assert delivered.status_code == 200, delivered.text
    for name, fields in (
        ("teams", {"name": "leads"}),
        ("notifications", {"kind": "email", "target": "tour@example.org"}),
        ("erasures", {"reason": REASON, "words": "voucher"}),
        (
            "new_erasure",
            {"reason": REASON, "subject": "words", "words": "Merged", "scope": "project"},
        ),
    ):
        _submit(browser, reverse(name), fields)
    _submit(browser, f"{reverse('stop')}?scope=tool&subject=backup.verify", {"reason": REASON})
    newest = {
        "invitation": Invitation,
        "token": AgentToken,
        "team": Team,
        "channel": NotificationChannel,
        "stop": Stop,
        "delivery": CodeHostDelivery,
        "erasure": ErasureRequest,
        "hold": LegalHold,
        "repository": Repository,
        "policy_set": PolicySet,
    }
    return {
        **{name: _find_newest(model, project) for name, model in newest.items()},
        "member": Membership.objects.get(project=project, user__username="sample-rita").pk,
        "agent": agent.pk,
        "retention_set": retention.pk,
        "identity": identity.pk,
        "source": source.pk,
    }


def _find_newest(model: Any, project: Project) -> Any:
    return model.objects.filter(project=project).latest("pk").pk


def _write_investigation(project: Project, sample: SampleIds) -> dict[str, Any]:
    browser = _open_browser()
    forms: tuple[tuple[str, dict[str, Any]], ...] = (
        ("open_incident", {"title": "Twice", "thing": sample.effects["ok"], "reason": REASON}),
        ("saved_queries", {"name": "Pushes", "q": "tool:git.push", "shared": "1"}),
        ("export", {"q": "tool:git.push", "do": "later"}),
        ("session_messages", {"subject": "Push", "body": "Wait for the push."}),
    )
    for name, fields in forms:
        url = reverse(name, args=[sample.session] if name == "session_messages" else [])
        url += "?q=tool:git.push" if name == "export" else ""
        _submit(browser, url, fields)
    newest = {
        "incident": Incident,
        "incident_member": IncidentMember,
        "saved_query": SavedQuery,
        "export": Export,
    }
    return {name: _find_newest(model, project) for name, model in newest.items()}


def _write_drafts(browser: Client, ids: dict[str, Any], sample: SampleIds) -> dict[str, Any]:
    """Begin a vote and a resolution, which wait for their confirmation."""
    lost = sample.effects["timeout"]
    fields = {"answer": "abandoned", "rationale": "The log of the remote was deleted."}
    _submit(browser, reverse("resolve", args=[lost]), fields)
    voted = {"answer": "approve", "reason": "Read, and checked on staging."}
    _submit(browser, reverse("gate", args=[ids["drafted"]]), voted)
    return {"lost": lost}


def _submit(browser: Client, url: str, fields: dict[str, Any]) -> None:
    """Fill in the form of a page that has these fields."""
    text = browser.get(url).content.decode()
    forms = FormReader(text.partition("<main")[2]).forms
    names = set(fields) - {"answer", "do"}  # buttons
    posted = [form for form in forms if form.method == "post"]
    form = next(form for form in posted if names <= form.names | form.fields.keys())
    _post(browser, form.action or url, form.fields | {n: [v] for n, v in fields.items()})


def _post(browser: Client, url: str, fields: dict[str, Any]) -> None:
    sent = browser.post(url, fields)
    errors = re.findall(r'(?s)(?:errorlist|role="alert").{,300}', sent.content.decode())
    assert sent.status_code == 302, (url, fields, sent.status_code, errors)


def _import_bundle(project: Project) -> dict[str, Any]:
    """Export a session with a decided request, and import it into an archive."""
    gate = Gate.objects.filter(project=project, status="used").select_related("effect")[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tour.gatebook.zip"
        session, name = str(gate.effect.session_id), project.name
        call_command("export_bundle", session, "--project", name, "--out", str(file))
        call_command("import_bundle", file, administrator=IMPORTER)
    row = ImportedGate.objects.latest("pk")
    return {"imported_gate": row.pk, "imported_session": row.effect.session_id}
