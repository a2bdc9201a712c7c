"""The pages and commands of erasure: ask, read the preview, confirm as a second person; holds."""

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from pytest_django import Settings

from accounts import people
from accounts.models import Membership
from erasure import erasure_requests, erasure_runner, storage_scrub
from erasure.models import ErasureRequest, LegalHold
from journal import entries
from journal.models import Body
from sessions.models import Session
from tests.pages.people import PASSWORD, Organization

WORD = "jane.q7xkvz@customer.example"


@pytest.fixture
def second(organization: Organization, settings: Settings, tmp_path: Any) -> Membership:
    """A second administrator; the files of the database are another test's subject."""
    settings.GATEBOOK_ERASURE_JOURNAL = tmp_path / "erasures.jsonl"
    settings.VAR_DIR = tmp_path  # erasures take turns by a file there
    return people.add_project_member(organization.project, "second", "administrator", PASSWORD)


@pytest.fixture(autouse=True)
def _no_scrub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's own transaction allows no VACUUM."""
    monkeypatch.setattr(storage_scrub, "scrub_storage", lambda _tables, **_options: "")


def append_body(organization: Organization) -> int:
    text = entries.dump_sorted_json({"to": WORD})
    project = organization.project.id
    draft = entries.Draft(project, "x", text[:9], "note.made", "evidence", "agent:1", text)
    return entries.append_entries([draft], 1)[0].position


def run() -> None:
    while erasure_runner.run_erasures():
        pass


def test_two_administrators_erase_on_the_pages(
    organization: Organization, second: Membership
) -> None:
    position = append_body(organization)
    first, other = organization.client("administrator"), organization.client("second")
    new = reverse("new_erasure")
    assert organization.client("operator").get(new).status_code == 403
    values = {"subject": "words", "words": f"{WORD}\n", "reason": "ticket 88", "scope": "project"}
    assert "Enter one word" in first.post(new, {**values, "words": ""}).text
    assert first.post(new, {**values, "subject": "person"}).status_code == 422
    assert "every project" in first.post(new, {**values, "scope": "all"}).text
    answer = first.post(new, values)
    row = ErasureRequest.objects.get()
    page, confirm = (reverse(name, args=[row.id]) for name in ("erasure", "confirm_erasure"))
    assert answer["Location"] == page
    assert "Being counted" in first.get(page).text
    run()
    assert "Another administrator confirms it" in first.get(page).text
    text = other.get(page).text
    assert WORD in text
    assert "Bodies of journal entries" in text
    shown = re.search(r'name="shown" value="(\w+)"', text)
    assert shown is not None
    assert organization.client("neighbour").get(page).status_code == 404
    assert organization.client("neighbour").post(confirm).status_code == 404
    for client, value in ((first, shown[1]), (other, "0" * 32)):
        client.post(confirm, {"shown": value})
        run()
        assert Body.objects.filter(entry=position).exists()
    other.post(confirm, {"shown": shown[1]})
    run()
    assert not Body.objects.filter(entry=position).exists()
    text = first.get(page).text
    assert "What was erased" in text
    assert WORD not in text
    assert page in first.get(reverse("erasures")).text


def test_a_hold_is_set_and_released_and_a_request_withdrawn(
    organization: Organization, second: Membership
) -> None:
    client = organization.client("administrator")
    held = Session.objects.create(
        project=organization.project,
        key="s",
        agent=organization.agent,
        opened_position=41,
        created_at_us=1,
        seen_at_us=1,
    )
    values = {"session": "s_41", "words": "", "reason": "case 12"}
    assert "no such session" in client.post(reverse("set_hold"), {**values, "session": "s_9"}).text
    client.post(reverse("set_hold"), values)
    hold = LegalHold.objects.get()
    assert hold.session == held
    assert "s_41" in client.get(reverse("erasures")).text
    release = reverse("release_hold", args=[hold.id])
    assert organization.client("neighbour").post(release).status_code == 404
    client.post(release)
    hold.refresh_from_db()
    assert hold.released_by == organization.members["administrator"].user
    row = erasure_requests.request_erasure(
        second.user, reason="x", project=organization.project, words=[WORD]
    )
    client.post(reverse("withdraw_erasure", args=[row.id]))
    row.refresh_from_db()
    assert (row.state, row.words) == ("withdrawn", [])


def command(*arguments: str) -> str:
    output = StringIO()
    call_command(*arguments, stdout=output)
    return output.getvalue()


def test_two_administrators_erase_by_commands(
    organization: Organization, second: Membership
) -> None:
    position = append_body(organization)
    project = organization.project.name
    text = command(
        "erase_subject",
        "--word",
        WORD,
        "--reason",
        "ticket 88",
        "--project",
        project,
        "--by",
        "administrator",
    )
    assert "Bodies of journal entries: 1, held 0, exempt 0" in text
    request = str(ErasureRequest.objects.get().pk)
    with pytest.raises(CommandError, match="Another administrator confirms it"):
        command("erase_subject", "--confirm", request, "--by", "administrator")
    with pytest.raises(CommandError, match="no erasure request"):
        command("erase_subject", "--confirm", "x", "--by", "second")
    assert "Erased." in command("erase_subject", "--confirm", request, "--by", "second")
    assert not Body.objects.filter(entry=position).exists()

    command(
        "erase_person", "viewer", "--reason", "ticket 89", "--project", project, "--by", "second"
    )
    request = str(ErasureRequest.objects.latest("requested_position").pk)
    command("erase_person", "--confirm", request, "--by", "administrator")
    person = organization.members["viewer"].user
    person.refresh_from_db()
    assert person.username.startswith("p_")
    with pytest.raises(CommandError, match="no person called"):
        command("erase_person", "viewer", "--reason", "x", "--by", "second")
