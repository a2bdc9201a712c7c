"""A person who used every part of Gatebook is in no row after the erasure, under no name."""

from functools import reduce
from io import StringIO
from operator import or_
from typing import Any, Final

import pytest
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import Q
from django.db.models.functions import Lower
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounts import agents, people
from accounts.models import Invitation, Membership
from accounts.sign_ins import list_counted_names
from approvals.models import Gate
from erasure import erasure_requests, erasure_runner, storage_scrub
from erasure.labels import COUNTS_MAY_DIFFER
from erasure.models import ErasureRequest
from erasure.text_columns import TEXT_TABLES
from investigation.exports import exports
from investigation.fulltext import indexer, store
from journal.models import Body
from tests.approvals.conftest import gate as gate
from tests.approvals.conftest import inbox as inbox
from tests.approvals.conftest import quiet as quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import DRAFT, TOKEN
from tests.erasure.conftest import run_all
from tests.erasure.test_erased_everywhere import find_rows
from tests.pages.people import PASSWORD, Organization
from tests.pages.test_people_passwords import SHOWN
from tests.visual.installation import FormReader

pytestmark = pytest.mark.usefixtures("own_folder")  # erasures take turns by a file there
NAME: Final = "vera7xq"
EMAIL: Final = "v.lind@quillfeather.example"
ADDRESS: Final = "203.0.113.77"
TRACES: Final = tuple(text.encode() for text in (NAME, "quillfeather", ADDRESS))
NEW: Final = "orbit-lantern-slate-43"
SIGN_INS: Final = (AccessAttempt, AccessFailureLog, AccessLog)


RULES: Final = f"""
name: named
rules:
- id: named
  title: Named people
  match: {{tools: [git.push]}}
  outcome: require
  require: {{minimum: 1, people: [{NAME}, reviewer]}}
"""
# What the documentation names as exempt: people whom rules require. Rules are a version that
# entries name by digest, and a request keeps what its rule required.
STAYS: Final = (
    "approvals_gate.requirement",
    "approvals_policyset.rules",
    "approvals_policyset.text",
    "journal_body.text of policy.loaded",
)


@pytest.fixture(autouse=True)
def _no_files(settings: Settings, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's own transaction allows no VACUUM; the files are another test's subject."""
    settings.GATEBOOK_ERASURE_JOURNAL = tmp_path / "erasures.jsonl"

    def scrub(_tables: Any, **_options: Any) -> str:
        store.purge_erased_words()
        return ""

    monkeypatch.setattr(storage_scrub, "scrub_storage", scrub)


def sign_in(name: str, password: str) -> tuple[Client, int]:
    browser = Client(REMOTE_ADDR=ADDRESS)
    fields = {"username": name, "password": password}
    answer = browser.post(f"/sign-in/?next=/people/{name}/", fields)
    return browser, answer.status_code


def submit(browser: Client, name: str, arguments: Any = (), /, **fields: Any) -> str:
    answer = browser.post(reverse(name, args=arguments), fields, follow=True)
    assert answer.status_code == 200, (name, answer.status_code, answer.text[-3000:])
    return answer.text


def fill_form(browser: Client, url: str, **fields: Any) -> None:
    """Send the form of a page that has these fields, with its other values."""
    forms = FormReader(browser.get(url).text.partition("<main")[2]).forms
    posted = [form for form in forms if form.method == "post"]
    form = next(form for form in posted if {*fields} - {"do"} <= form.names | form.fields.keys())
    answer = browser.post(form.action or url, form.fields | fields)
    assert answer.status_code == 302, (url, answer.status_code)


def join_project(organization: Organization) -> Client:
    """Invite the person, who failed to sign in before, and let them join as an administrator."""
    assert sign_in(NAME, "guess")[1] == 200  # before the account exists
    administrator = organization.client("administrator")
    shown = SHOWN.search(submit(administrator, "people", username=NAME, role="administrator"))
    assert shown is not None
    assert sign_in(NAME.upper(), shown[1])[1] == 200  # names have a letter case
    for _ in range(6):
        sign_in(NAME, "guess")
    AccessAttempt.objects.filter(username=NAME).update(failures_since_start=1)
    browser, status = sign_in(NAME, shown[1])
    assert status == 302
    submit(browser, "password", old_password=shown[1], new_password1=NEW, new_password2=NEW)
    User.objects.filter(username=NAME).update(
        email=EMAIL, first_name="Vera", last_name="Quillfeather"
    )
    row = Invitation.objects.get(user__username=NAME)
    submit(browser, "invitations", invitation=str(row.id), do="accept")
    assert Membership.objects.filter(user__username=NAME).exists()
    for _ in range(2):
        assert sign_in(NAME, NEW)[1] == 302
    sign_in(NAME, "guess")
    return browser


def do_everything(browser: Client, inbox: InboxScenario, gate: Gate) -> None:
    """Vote, comment, search, save a query, invite somebody, export, and what else people do."""
    page = browser.get(reverse("gate", args=[gate.id]))
    seen = TOKEN.search(page.text)
    assert seen is not None
    submit(browser, "gate_comment", [gate.id], comment=f"I, {NAME} of {EMAIL}, have a question.")
    fields = {"answer": "approve", "reason": "Agreed, Vera Quillfeather", "seen": seen[1]}
    answer = browser.post(reverse("gate_vote", args=[gate.id]), {**fields, "settled": "1"})
    assert answer.status_code == 302
    draft = DRAFT.search(browser.get(answer["Location"]).text)
    if draft is not None:
        submit(browser, "gate_confirm", [gate.id], seen_draft=draft[1], password=NEW)
    assert gate.votes.filter(user__username=NAME).exists()
    assert browser.get(reverse("search"), {"q": f'reviewer:{NAME} "{EMAIL}"'}).status_code == 200
    submit(browser, "people", username="newcomer", role="viewer")
    for url, fields in {
        reverse("saved_queries"): {"name": "Mine", "q": f"reviewer:{NAME}", "shared": "1"},
        f"{reverse('export')}?q=reviewer:{NAME}": {"do": "later"},
        reverse("notifications"): {"kind": "email", "target": EMAIL},
        reverse("teams"): {"name": "leads"},
        reverse("open_incident"): {"title": "Twice", "thing": str(gate.effect_id), "reason": NAME},
        reverse("session_messages", args=[gate.session_id]): {"subject": "Push", "body": EMAIL},
        reverse("erasures"): {"reason": "case 9", "words": "voucher-88"},
        f"{reverse('stop')}?scope=tool&subject=mail.send": {"reason": f"{NAME} got too many"},
    }.items():
        fill_form(browser, url, **fields)
    exports.run_exports()


def involve_person(inbox: InboxScenario) -> None:
    """Let agents and others name the person where Gatebook asks for a user name."""
    inbox.rules(RULES)
    opened = inbox.agent.session("for-vera", on_behalf_of=NAME, owner=NAME, title="For a person")
    inbox.agent.plan("named", opened["id"], tool="git.push", arguments={"to": EMAIL})
    gate = Gate.objects.filter(session=opened["id"]).latest("opened_position")
    other = inbox.organization.client("reviewer")
    submit(other, "gate_comment", [gate.id], comment=f"Ask @{NAME}, please.")
    submit(other, "gate_assign", [gate.id], to=NAME)
    agents.ensure_agent(inbox.project, "helper-of-vera", User.objects.get(username=NAME))


def erase_person(organization: Organization, person: User, **options: Any) -> ErasureRequest:
    first = User.objects.get(username="administrator")
    row = erasure_requests.request_erasure(
        first, reason="ticket 88", project=None, person=person, **options
    )
    run_all()
    row.refresh_from_db()
    assert row.state == "counted"
    return row


def list_holders() -> list[str]:
    """Return the columns that hold the person, with the kinds of bodies."""
    holders = [holder for holder in find_rows(*TRACES) if holder != "journal_body.text"]
    bodies = Body.objects.annotate(lower=Lower("text")).filter(
        reduce(or_, (Q(lower__contains=trace.decode()) for trace in TRACES))
    )
    kinds = set(bodies.values_list("entry__kind", flat=True))
    return sorted([*holders, *(f"journal_body.text of {kind}" for kind in kinds)])


def test_a_person_who_did_everything_is_in_no_row(inbox: InboxScenario, gate: Gate) -> None:
    organization = inbox.organization
    second = people.add_project_member(organization.project, "second", "administrator", PASSWORD)
    browser = join_project(organization)
    person = User.objects.get(username=NAME)
    do_everything(browser, inbox, gate)
    involve_person(inbox)
    indexer.update_index()
    assert {holder.partition(".")[0] for holder in list_holders()} >= {
        *("auth_user", "axes_accessattempt", "axes_accesslog", "journal_body"),
        *("investigation_savedquery", "investigation_export", "notifications_notificationchannel"),
    }
    rows = [model.objects.count() for model in SIGN_INS]
    AccessLog.objects.create(username="reviewer", ip_address="192.0.2.1")
    row = erase_person(organization, person)
    assert row.counts["sign_ins"]["rows"] >= sum(rows) > 5
    erasure_requests.confirm_erasure(row.pk, second.user, erasure_requests.digest_counts(row))
    run_all()
    row.refresh_from_db()
    assert row.state == "done"
    assert list_holders() == sorted(STAYS)
    assert set(AccessLog.objects.values_list("username", flat=True)) == {"reviewer"}
    assert row.erased_counts["sign_ins"] == row.counts["sign_ins"]
    out = StringIO()
    call_command("rebuild", "--check", stdout=out)
    assert "no row differs from the journal" in out.getvalue()


def test_a_sign_in_while_the_erasure_runs_leaves_no_row(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account is closed, but its name counts wrong passwords until the end."""
    person = organization.members["viewer"].user
    second = people.add_project_member(organization.project, "second", "administrator", PASSWORD)
    row = erase_person(organization, person)
    erasure_requests.confirm_erasure(row.pk, second.user, erasure_requests.digest_counts(row))
    finish = erasure_runner._finish

    def try_again(*given: Any) -> None:
        assert sign_in("viewer", PASSWORD)[1] == 200
        assert AccessAttempt.objects.filter(username="viewer").exists()
        finish(*given)

    monkeypatch.setattr(erasure_runner, "_finish", try_again)
    run_all()
    row.refresh_from_db()
    assert (row.state, row.erased_counts["sign_ins"]["rows"]) == ("done", 1)
    assert [model for model in SIGN_INS if model.objects.exists()] == []


@pytest.mark.parametrize("model", SIGN_INS)
def test_rows_of_the_sign_in_go_by_the_name_alone(organization: Organization, model: Any) -> None:
    """Also those from before the account existed, and those of a name in another letter case."""
    person = organization.members["viewer"].user
    second = people.add_project_member(organization.project, "second", "administrator", PASSWORD)
    others = ["reviewer", "Viewer", "viewer2", "unknown 1"]
    names = [*list_counted_names("viewer"), *others]
    counts = {"failures_since_start": 1} if model is AccessAttempt else {}
    for name in names:
        model.objects.create(username=name, ip_address=ADDRESS, **counts)
    row = erase_person(organization, person)
    assert row.counts["sign_ins"]["rows"] == len(names) - len(others)
    erasure_requests.confirm_erasure(row.pk, second.user, erasure_requests.digest_counts(row))
    run_all()
    assert sorted(model.objects.values_list("username", flat=True)) == sorted(others)


def test_as_many_words_of_the_index_go_as_the_preview_counts(quiet: InboxScenario) -> None:
    """An effect whose reference contains the word loses its row of the index with it."""
    organization, agent = quiet.organization, quiet.agent
    second = people.add_project_member(organization.project, "second", "administrator", PASSWORD)
    for number, resource in enumerate([f"mailbox of {EMAIL}", "mailbox", f"outbox of {EMAIL}"]):
        agent.session("s-1")
        target = {"resource": resource}
        agent.plan(f"e-{number}", tool="mail.send", arguments={"to": EMAIL}, target=target)
    indexer.update_index()
    first = organization.members["administrator"].user
    row = erasure_requests.request_erasure(
        first, reason="ticket 88", project=organization.project, words=[EMAIL]
    )
    run_all()
    row.refresh_from_db()
    assert (row.counts["search"]["rows"], row.counts["titles"]["rows"]) == (3, 2)
    page = organization.client("second").get(reverse("erasure", args=[row.pk])).text
    assert COUNTS_MAY_DIFFER in page
    out = StringIO()
    call_command(
        "erase_subject", "--confirm", str(row.pk), "--by", second.user.username, stdout=out
    )
    assert out.getvalue().count(COUNTS_MAY_DIFFER) == 2
    row.refresh_from_db()
    assert (row.state, row.erased_counts) == ("done", row.counts)


@pytest.mark.parametrize("moved", [0, 1])
def test_a_run_of_another_release_begins_again_where_tables_moved(moved: int) -> None:
    """What a release put before the stored place is not read yet."""
    progress = {"step": 30 + moved, "table": TEXT_TABLES[30].label, "after": None}
    place = erasure_runner._read_progress(ErasureRequest(progress=progress))
    assert place == ((0, None) if moved else (30, None))
