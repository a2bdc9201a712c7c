"""The settings pages of sources: a secret is shown once, rotated, and a source turned off."""

import re

import pytest
from django.test import Client

from hooks.models import CodeHostSource
from journal.models import Entry
from tests.hooks.code_hosts.code_host import CodeHost, build_push

pytestmark = pytest.mark.django_db
PAGE = "/settings/code-hosts/"


def take_secret(client: Client, url: str) -> str:
    """Return the secret that the page shows, and check that it shows it only once."""
    shown = re.search(r"<output>(whsec_[^<]+)</output>", client.get(url).content.decode())
    assert shown
    assert "whsec_" not in client.get(url).content.decode()
    return shown[1]


def test_a_source_is_added_rotated_and_turned_off(host: CodeHost) -> None:
    client = host.organization.client("administrator")
    added = client.post(PAGE, {"host": "github", "name": "web"})
    assert added.status_code == 302
    source = CodeHostSource.objects.get(name="web")
    own = f"{PAGE}{source.id}/"
    first = take_secret(client, own)
    path = f"/hooks/github/{source.id}"
    assert host.deliver("push", build_push(), path=path, secret=first).status_code == 200
    assert client.post(own, {"overlap": "0"}).status_code == 302
    second = take_secret(client, own)
    assert host.deliver("push", build_push(), path=path, secret=first).status_code == 401
    assert host.deliver("push", build_push(), path=path, secret=second).status_code == 200
    assert client.post(f"{own}switch/").status_code == 302
    assert host.deliver("push", build_push(), path=path, secret=second).status_code == 403
    kinds = Entry.objects.filter(subject=source.id, kind__startswith="admin.")
    assert list(kinds.order_by("position").values_list("kind", flat=True)) == [
        "admin.source_added",
        "admin.source_rotated",
        "admin.source_changed",
    ]
    entries = Entry.objects.filter(subject=source.id)
    assert not any("whsec_" in entry.body.text for entry in entries)


@pytest.mark.parametrize(
    "form",
    [
        {"host": "github", "name": "acme"},
        {"host": "github", "name": " "},
        {"host": "forge", "name": "web"},
        {"host": "github", "name": "a\u202eb"},
        {},
    ],
)
def test_a_wrong_source_is_refused(host: CodeHost, form: dict[str, str]) -> None:
    answer = host.organization.client("administrator").post(PAGE, form)
    assert answer.status_code == 422
    assert CodeHostSource.objects.count() == 1


@pytest.mark.parametrize("member", ["viewer", "reviewer", "operator"])
def test_only_administrators_manage_sources(host: CodeHost, member: str) -> None:
    client = host.organization.client(member)
    for url in (PAGE, f"{PAGE}{host.source.id}/"):
        assert client.get(url).status_code == 403
        assert (
            client.post(url, {"host": "github", "name": "web", "overlap": "0"}).status_code == 403
        )
    assert client.post(f"{PAGE}{host.source.id}/switch/").status_code == 403
    assert CodeHostSource.objects.get().secret_generation == 1


def test_a_source_of_another_project_is_not_found(host: CodeHost) -> None:
    client = host.organization.client("neighbour")
    assert client.get(f"{PAGE}{host.source.id}/").status_code in (403, 404)
