"""Erase a body: as an administrator on the effect page, and by a command."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from accounts import people
from journal.models import Body, Entry, Erasure
from ledger.models import Effect
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds


def plan_of(sample: SampleIds, name: str = "ok") -> tuple[Effect, int]:
    effect = Effect.objects.get(id=sample.effects[name])
    assert effect.plan_position is not None
    return effect, effect.plan_position


def test_an_administrator_erases_a_body_from_the_effect_page(
    organization: Organization, sample: SampleIds
) -> None:
    effect, position = plan_of(sample)
    client, url = organization.client("administrator"), reverse("erase_body", args=[position])
    page = reverse("effect", args=[effect.id])
    assert f'<a class="erases" href="{url}">' in client.get(page).text  # set apart from Raw
    assert url not in organization.client("operator").get(page).text
    confirmation = client.get(url)
    assert "effect.planned" in confirmation.text
    assert client.post(url, {"reason": ""}).status_code == 422
    assert client.post(url, {"reason": "request\n17"}).status_code == 422
    assert client.post(url, {"reason": "request \u202e71"}).status_code == 422
    assert Body.objects.filter(entry=position).exists()
    done = client.post(url, {"reason": "request 17"}, follow=True)
    assert done.redirect_chain == [(page, 302)]
    assert "is erased" in done.text
    assert "Erased: request 17." in done.text
    assert "git push origin main" not in done.text
    assert not Body.objects.filter(entry=position).exists()
    erasure = Erasure.objects.get(entry=position)
    assert erasure.actor == people.ensure_pseudonym(organization.members["administrator"].user)
    assert Entry.objects.get(kind="erasure.executed").actor == erasure.actor
    assert client.post(url, {"reason": "again"}).status_code == 404


def test_no_body_of_another_project_can_be_erased(
    organization: Organization, sample: SampleIds
) -> None:
    _, position = plan_of(sample)
    stranger = organization.client("neighbour")  # an administrator of another project
    for answer in (
        stranger.get(reverse("erase_body", args=[position])),
        stranger.post(reverse("erase_body", args=[position]), {"reason": "mine"}),
        stranger.get(reverse("erase_body", args=[2**63 + 1])),
    ):
        assert answer.status_code == 404
    assert Body.objects.filter(entry=position).exists()


def erase(position: int, reason: str = "ticket 88") -> Any:
    return call_command("erase_body", str(position), "--reason", reason)


def test_the_command_erases_a_body_and_reports_it(
    organization: Organization, sample: SampleIds
) -> None:
    _, position = plan_of(sample)
    assert "(effect.planned) is destroyed" in erase(position)
    assert not Body.objects.filter(entry=position).exists()
    assert Erasure.objects.get(entry=position).actor == "gatebook"
    with pytest.raises(CommandError, match="may have been erased before"):
        erase(position)


@pytest.mark.parametrize(
    ("position", "reason", "sentence"),
    [
        (10**9, "ticket", "no entry at position"),
        (-1, "ticket", "no entry at position"),
        (2**63, "ticket", "no entry at position"),
        (1, "  ", "1 to 200 printable"),
        (1, "x" * 201, "1 to 200 printable"),
    ],
)
def test_the_command_refuses_invalid_options(
    sample: SampleIds, position: int, reason: str, sentence: str
) -> None:
    before = Body.objects.count()
    with pytest.raises(CommandError, match=sentence):
        erase(position, reason) if position >= 0 else call_command(
            "erase_body", "--reason", reason, "--", "-1"
        )
    assert Body.objects.count() == before
