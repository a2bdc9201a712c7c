"""From the button on one book's page to the pages of another: nothing gets lost, and nothing is
claimed."""

import hashlib
import re
from difflib import unified_diff
from itertools import count
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse

from accounts import tokens
from accounts.models import Person, Project
from accounts.people import ensure_pseudonym
from approvals import exemptions
from approvals.models import Gate, Vote
from approvals.policies import policies
from db.clock import now_us
from db.errors import ChangeRefused
from display import access_log
from investigation.bundles import zip_writer
from investigation.bundles.collect import ExportCut, load_cut
from investigation.bundles.schema import bundle_schema
from investigation.models import ImportedBundle
from journal.models import Entry
from ledger import resolutions, stops
from ledger.models import Effect
from ledger.resolutions import ResolutionInput
from pages.bundles import views
from sessions import messages
from sessions.models import Artifact, Session
from tests.approvals.confirm_helpers import proved
from tests.bundles.conftest import RULES, Origin, members
from tests.pages.sample_data import REPORT

pytestmark = pytest.mark.django_db
COMPARED = (
    *(
        "ok",
        "error",
        "unknown",
        "rejected",
        "timeout",
        "compensated",
        "undoing",
        "superseded",
        "two",
        "unanswered",
    ),
    *("denied", "waits", "forbidden", "bypassed"),
)
# What may differ: handles, positions, whose book it is, and what can be done about it.
_SAME = (
    (r"<header.*?</header>", ""),
    (r"<dt>Agent · on behalf of</dt>.*?</dd>", ""),
    (r'<section class="section" id="sub-sessions".*?</section>', ""),
    (r"<a\s[^>]*>Erase.*?</a>", ""),
    (r"<a\s[^>]*>\s*Resolve[^<]*</a>", ""),
    (r'\s*<span class="quiet">as\s+reported\s+by\s+the\s+bundle</span>', ""),
    (r'data-left="\d+">[^<]*', ">LEFT"),
    (r'(data-label="Position"[^>]*>)(\s*<a\s[^>]*>)?[^<]*', r"\1N"),
    (r"<[^>]*>", "\n"),
    (r"(from Gatebook|from agent): the (item|entry) as stored", "LABEL"),
    (r"from the bundle: the item as originally stored", "LABEL"),
    (r"gatebook/bundle:[0-9a-f]{8}:", ""),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"(?<![a-z])([estagm])_\d+", r"\1_N"),
    (r"(handoff|checkpoint|[Pp]osition|[Ee]ntry)(\s*)[\d,.]+", r"\1\2N"),
)


def said(text: str) -> list[str]:
    """What the parts of a page that tell of what happened say, with what may differ taken out."""
    main = text[text.index("<main") : text.index("</main>")]
    parts = r"<section.*?</section>|<ol class=\"life.*?</ol>|<dl.*?</dl>|<table.*?</table>"
    found = "\n".join(re.findall(parts, main, re.DOTALL))
    for pattern, other in _SAME:
        found = re.sub(pattern, other, found, flags=re.DOTALL)
    lines = [line.strip() for line in found.splitlines() if line.strip()]
    assert len(lines) > 5, main
    return lines


def differences(first: str, second: str) -> list[str]:
    """What two pages say otherwise, line by line."""
    return [
        line
        for line in unified_diff(said(first), said(second), "there", "here", n=0, lineterm="")
        if line[:2] != "@@"
    ]


def imported(path: Path, reader: str = "archivist", **options: Any) -> ImportedBundle:
    call_command("import_bundle", str(path), administrator=reader, **options)
    return ImportedBundle.objects.get(sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def client_of(name: str) -> Client:
    client, user = Client(), User.objects.get(username=name)
    Person.objects.filter(user=user).update(
        password_is_own=True
    )  # as after the page that replaces the first one
    client.force_login(user)
    return client


@pytest.fixture
def path(origin: Origin, tmp_path: Path) -> Path:
    found = tmp_path / "s.gatebook.zip"
    found.write_bytes(origin.export())
    return found


def test_an_imported_session_shows_the_same_pages_and_nothing_of_it_can_be_done(
    origin: Origin, path: Path
) -> None:
    votes, gates = Vote.objects.count(), Gate.objects.count()
    there, bundle = origin.desk.house.client("administrator"), imported(path, project="elsewhere")
    here, session = client_of("archivist"), bundle.session
    told = Entry.objects.get(kind="access.exported")
    operator = ensure_pseudonym(User.objects.get(username="operator"))
    assert (told.session, told.actor, orjson.loads(told.facts)["sha256"]) == (
        origin.book.session,
        operator,
        bundle.sha256,
    )

    page = here.get(reverse("session", args=[session.id])).text
    assert "Imported from a bundle" in page
    assert "Read-only archive," in page
    assert "Export session" not in page
    before = here.get(reverse("session", args=[session.id]), {"asof": "2h"})
    assert before.status_code == 400
    assert "Open them in the Gatebook that exported the bundle" in before.text
    assert "Resolve" not in here.get(reverse("session_resume", args=[session.id])).text
    for name in (
        "session",
        "session_decisions",
        "session_handoffs",
        "session_state",
        "session_tasks",
    ):
        first = there.get(reverse(name, args=[origin.book.session])).text
        second = here.get(reverse(name, args=[session.id])).text
        assert not (other := differences(first, second)), "\n".join([name, *other])
    assert Effect.objects.filter(session=session).count() == origin.session.effect_count >= 18
    for key in COMPARED:
        one = Effect.objects.get(session=session, effect_key=key)
        first = there.get(reverse("effect", args=[origin.effect(key).id])).text
        second = here.get(reverse("effect", args=[one.id])).text
        assert not (other := differences(first, second)), "\n".join([key, *other])
        assert "as reported by the bundle" in " ".join(second.split())
        assert f"handle of this effect is {origin.effect(key)}." in " ".join(
            re.sub(r"<[^>]*>", "", second).split()
        )
        assert "Resolve" not in second
        assert (one.state, one.outcome, one.permission, one.permission_basis, one.violates) == (
            *(origin.effect(key).state, origin.effect(key).outcome, origin.effect(key).permission),
            *(origin.effect(key).permission_basis, origin.effect(key).violates),
        )
    lanes = reverse("session_timeline", args=[session.id]) + "?view=json&clock=server"
    first = there.get(
        reverse("session_timeline", args=[origin.book.session]) + "?view=json&clock=server"
    ).json()
    second = here.get(lanes).json()
    assert _moves(first) == _moves(second)

    stored = Artifact.objects.get(session=session, stored_at_us__isnull=False)
    file = here.get(reverse("artifact", args=[stored.id]))
    assert b"".join(file.streaming_content) == REPORT  # type: ignore[attr-defined]
    erased = Effect.objects.get(session=session, effect_key="error")
    assert here.get(reverse("raw_fact", args=[erased.id, erased.plan_position])).status_code == 410
    assert "request 17" in here.get(reverse("effect", args=[erased.id])).text
    _nothing_can_be_done(origin, path, bundle, votes, gates)


def _moves(told: dict[str, Any]) -> list[Any]:
    return [
        [
            one["tool"],
            one["state"],
            [(step["what"], step["attempt"], step["at_us"]) for step in one["facts"]],
        ]
        for one in told["effects"]
    ]


def _nothing_can_be_done(
    origin: Origin, path: Path, bundle: ImportedBundle, votes: int, gates: int
) -> None:
    here, archive = client_of("archivist"), bundle.project
    assert (archive.name, archive.archive) == ("elsewhere", True)
    assert (Vote.objects.count(), Gate.objects.count()) == (votes, gates)

    assert "harbour drill" in here.get(reverse("session_bundle", args=[bundle.session_id])).text
    two = Effect.objects.get(session=bundle.session, effect_key="two")
    assert (two.imported, two.permission, two.permission_basis) == (True, "used", "ruling")
    page = here.get(reverse("effect", args=[two.id])).text
    [link] = re.findall(r'href="(/imported-gates/[^"]+)"', page)
    gate = here.get(link).text
    for name in ("ann", "bob"):
        assert f"{name} agrees in INC-204" in gate
        assert ensure_pseudonym(User.objects.get(username=name)) in gate
    assert "approved and used" in gate
    assert not re.search(r"<form[^>]*(answer|decide)", gate)
    assert client_of("neighbour").get(link).status_code == 404  # project isolation
    assert (
        here.post(
            reverse("gate_vote", args=[link.split("/")[2]]), {"answer": "approve"}
        ).status_code
        == 404
    )

    lost = Effect.objects.get(session=bundle.session, effect_key="timeout")
    for door in ("resolve", "resolve_confirm"):
        said = {"answer": "happened", "rationale": "I saw it with my own eyes", "seen": "x"}
        assert (
            "Imported from a bundle"
            in here.post(reverse(door, args=[lost.id]), said, follow=True).text
        )
    word = ResolutionInput("happened", "I saw it with my own eyes", lost.version, reference="x")
    user = User.objects.get(username="archivist")
    with transaction.atomic():
        answer = resolutions.record_resolution(archive.id, lost.id, word, user)
    assert answer.refusal is not None
    assert answer.refusal.code == "not_asked"
    for deed in (
        lambda: tokens.issue_token(two.agent, expires_in=None, actor="gatebook"),
        lambda: messages.send_person_message(user, two.agent, bundle.session, "", "Go on.", "key"),
        lambda: stops.set_stop(archive, "project", "", "stop it all", user),
        lambda: exemptions.create_exemption(
            archive,
            tool="*",
            reason="for the drill",
            ends_at_us=now_us() + 10**9,
            user=user,
            **proved(),
        ),
        lambda: policies.activate_policy_set(
            archive, policies.load_policy_set(archive, RULES), "enforce", user
        ),
    ):
        with (
            pytest.raises(ChangeRefused, match="is a read-only archive of imported bundles"),
            transaction.atomic(),
        ):
            deed()
    stop = {"scope": "session", "subject": bundle.session_id.hex, "reason": "stop it all"}
    assert "is a read-only archive of imported bundles" in here.post(reverse("stop"), stop).text
    for law, write in (
        (
            "imported_effect_never_changes",
            lambda: Effect.objects.filter(id=lost.id).update(state="superseded"),
        ),
        (
            "project_kind_never_changes",
            lambda: Project.objects.filter(id=archive.id).update(archive=False),
        ),
        ("imported_effect_is_in_an_archive", lambda: _copied(lost, origin.desk.project)),
        ("archive_has_no_tokens", lambda: _token_in(origin, archive)),
    ):
        with pytest.raises(DatabaseError, match=law), transaction.atomic():
            write()
    assert here.post(reverse("export_bundle", args=[bundle.session_id]), follow=True).text.count(
        "Share that file"
    )
    again = call_command("import_bundle", str(path), administrator="archivist")
    assert "Nothing was changed" in again
    assert ImportedBundle.objects.count() == 1


def _copied(effect: Effect, project: Project) -> None:
    effect.id, effect.effect_key, effect.project = effect.session_id, "copy", project
    effect.save(force_insert=True)


def _token_in(origin: Origin, archive: Project) -> None:
    token = origin.desk.house.token
    token.id, token.public_id, token.project = archive.id, "abcdefgh", archive
    token.save(force_insert=True)


def test_the_file_is_the_same_for_the_same_content_and_names_nobody(
    origin: Origin, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = path.read_bytes()
    door, page = (
        reverse(name, args=[origin.book.session]) for name in ("export_bundle", "session")
    )
    for name in ("viewer", "reviewer"):
        assert origin.desk.house.client(name).post(door).status_code == 403
        assert door not in origin.desk.house.client(name).get(page).text
    operator = origin.desk.house.client("operator")
    assert door in operator.get(page).text
    assert operator.get(door).status_code == 405
    with monkeypatch.context() as patched:
        patched.setattr(views, "MAX_EFFECTS", 1)
        assert "too many for a download" in operator.post(door, follow=True).text
    assert Entry.objects.filter(kind="access.exported").count() == 1
    origin.desk.agent.session(
        "another"
    )  # what happens elsewhere changes nothing of it, nor does who looks at it
    ok = origin.effect("ok")
    access_log.record_view(
        ok.project_id, "p_1", "effect", ok.opened_position, of=(ok.session_id, ok.id, ok.id)
    )
    assert origin.export() == first
    cuts = iter(
        [ExportCut(1, 1, 1), ExportCut(2, 2, 2)]
    )  # somebody writes while it is read for the first time
    with monkeypatch.context() as patched:
        patched.setattr(zip_writer, "load_cut", lambda one: next(cuts, None) or load_cut(one))
        assert origin.export() == first
        numbers = count()
        patched.setattr(zip_writer, "load_cut", lambda _: ExportCut(1, next(numbers), 1))
        taken = Entry.objects.filter(kind="access.exported").count()
        assert "changes faster than it can be exported" in operator.post(door, follow=True).text
        assert Entry.objects.filter(kind="access.exported").count() == taken
    held = members(first)
    for person in User.objects.exclude(username="reviewer"):  # a role is called so too
        for name, content in held.items():
            assert not re.search(
                rb'[":, ]%s["@,. ]' % person.username.encode(), _people_free(content)
            ), (person, name)
    document = orjson.loads(held["bundle.json"])
    viewer = ensure_pseudonym(User.objects.get(username="viewer"))
    started = next(one for one in document["entries"] if one["kind"] == "session.started")
    assert (
        document["on_behalf_of"] == orjson.loads(started["body"]["text"])["on_behalf_of"] == viewer
    )
    assert started["body"]["replaced"] == ["on_behalf_of"]
    assert held["artifacts/" + hashlib.sha256(REPORT).hexdigest()] == REPORT
    [diff] = [content for name, content in held.items() if name.startswith("diffs/")]
    assert diff == b"--- a/pay/round.py\n+++ b/pay/round.py\n@@ @@\n a\n-b\n+c\n"
    readme = held["README.md"].decode()
    assert "\u202e" not in readme
    assert "not on a Friday" in readme
    assert "harbour drill" in readme
    position = origin.effect("ok").plan_position
    erasing = (
        origin.desk.house.client("administrator").get(reverse("erase_body", args=[position])).text
    )
    assert "3 exported bundles of its session</b>\nalso contain it" in erasing
    assert "## Unknown outcomes" in readme
    assert re.search(r"- e_\d+ git.push: dispatched with permission bypassed", readme)
    rows = orjson.loads(held["schema.json"])
    published = Path(settings.BASE_DIR) / "docs" / "bundle.schema.json"
    assert rows == bundle_schema() == orjson.loads(published.read_bytes())
    assert jsonschema_rs.Draft202012Validator(rows).is_valid(document)
    erased = [one for one in document["entries"] if one["body"] and "erased" in one["body"]]
    assert [one["body"]["erased"]["reason"] for one in erased] == ["request 17"]
    assert "text" not in erased[0]["body"]
    origin.desk.agent.plan("later", str(origin.book.session), tool="file.read")
    assert origin.export() != first
    assert Session.objects.filter(id=origin.book.session).exists()


def _people_free(content: bytes) -> bytes:
    """Without the reasons that the story's own people wrote, which name them as free text."""
    return re.sub(rb"(ann|bob) agrees", b"agrees", content)
