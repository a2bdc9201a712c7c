"""From the export button of one Gatebook to the pages of another: nothing is lost or added."""

import hashlib
import re
import time
from difflib import unified_diff
from itertools import count
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
import time_machine
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse

from accounts import tokens
from accounts.models import Project
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
from tests.bundles.conftest import RULES, Origin, members, packed
from tests.bundles.test_refusals import summed
from tests.pages.sample_data import REPORT
from tests.rows_with_entries import mark_own_password

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
# What may differ: handles, positions, the name of the Gatebook, and the available actions.
_SAME = (
    (r"<header.*?</header>", ""),
    (r"<dt>Agent · on behalf of</dt>.*?</dd>", ""),
    (r'<section class="section" id="sub-sessions".*?</section>', ""),
    (r"request expires \d\d:\d\d:\d\d", ""),  # a request of an archive waits for no one
    (r'<section class="section" id="people".*?</section>', ""),  # an archive knows no names
    (r"<a\s[^>]*>Erase.*?</a>", ""),
    (r"<a\s[^>]*>\s*Resolve[^<]*</a>", ""),
    (r"<a\s[^>]*>\s*Review \d+[^<]*</a>", ""),
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


def comparable_lines(text: str) -> list[str]:
    """Return the text lines of the factual parts of a page, without what may differ."""
    main = text[text.index("<main") : text.index("</main>")]
    parts = r"<section.*?</section>|<ol class=\"lifecycle.*?</ol>|<dl.*?</dl>|<table.*?</table>"
    shown = "\n".join(re.findall(parts, main, re.DOTALL))
    for pattern, other in _SAME:
        shown = re.sub(pattern, other, shown, flags=re.DOTALL)
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert len(lines) > 5, main
    return lines


def differences(first: str, second: str) -> list[str]:
    """Return the lines in which two pages differ."""
    return [
        line
        for line in unified_diff(
            comparable_lines(first), comparable_lines(second), "there", "here", n=0, lineterm=""
        )
        if line[:2] != "@@"
    ]


def imported(path: Path, reader: str = "archivist", **options: Any) -> ImportedBundle:
    call_command("import_bundle", str(path), administrator=reader, **options)
    return ImportedBundle.objects.get(sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def client_of(name: str) -> Client:
    client, user = Client(), User.objects.get(username=name)
    mark_own_password(user)  # as after the next page
    client.force_login(user)
    return client


@pytest.fixture
def path(origin: Origin, tmp_path: Path) -> Path:
    file = tmp_path / "s.gatebook.zip"
    file.write_bytes(origin.export())
    return file


def test_an_imported_session_shows_the_same_pages_and_is_read_only(
    origin: Origin, path: Path
) -> None:
    votes, gates = Vote.objects.count(), Gate.objects.count()
    there, bundle = (
        origin.inbox.organization.client("administrator"),
        imported(path, project="elsewhere"),
    )
    archivist, session = client_of("archivist"), bundle.session
    exported = Entry.objects.get(kind="access.exported")
    operator = ensure_pseudonym(User.objects.get(username="operator"))
    assert (exported.session, exported.actor, orjson.loads(exported.facts)["sha256"]) == (
        origin.exported.session,
        operator,
        bundle.sha256,
    )

    page = archivist.get(reverse("session", args=[session.id])).text
    assert "Imported from a bundle" in page
    assert "Read-only archive," in page
    assert "Export session" not in page
    before = archivist.get(reverse("session", args=[session.id]), {"asof": "2h"})
    assert before.status_code == 400
    assert "Open them in the Gatebook that exported the bundle" in before.text
    assert "Resolve" not in archivist.get(reverse("session_resume", args=[session.id])).text
    for name in (
        "session",
        "session_decisions",
        "session_handoffs",
        "session_state",
        "session_tasks",
    ):
        with time_machine.travel(time.time(), tick=False):  # the drawing ends now
            first = there.get(reverse(name, args=[origin.exported.session])).text
            second = archivist.get(reverse(name, args=[session.id])).text
        assert not (other := differences(first, second)), "\n".join([name, *other])
    assert Effect.objects.filter(session=session).count() == origin.session.effect_count >= 18
    for key in COMPARED:
        copy = Effect.objects.get(session=session, effect_key=key)
        first = there.get(reverse("effect", args=[origin.effect(key).id])).text
        second = archivist.get(reverse("effect", args=[copy.id])).text
        assert not (other := differences(first, second)), "\n".join([key, *other])
        assert "as reported by the bundle" in " ".join(second.split())
        assert f"handle of this effect is {origin.effect(key)}." in " ".join(
            re.sub(r"<[^>]*>", "", second).split()
        )
        assert "Resolve" not in second
        assert (
            copy.state,
            copy.outcome,
            copy.permission,
            copy.permission_basis,
            copy.violates,
        ) == (
            *(origin.effect(key).state, origin.effect(key).outcome, origin.effect(key).permission),
            *(origin.effect(key).permission_basis, origin.effect(key).violates),
        )
    lanes = reverse("session_timeline", args=[session.id]) + "?view=json&clock=server"
    first = there.get(
        reverse("session_timeline", args=[origin.exported.session]) + "?view=json&clock=server"
    ).json()
    second = archivist.get(lanes).json()
    assert _moves(first) == _moves(second)

    stored = Artifact.objects.get(session=session, stored_at_us__isnull=False)
    file = archivist.get(reverse("artifact", args=[stored.id]))
    assert b"".join(file.streaming_content) == REPORT  # type: ignore[attr-defined]
    erased = Effect.objects.get(session=session, effect_key="error")
    assert (
        archivist.get(reverse("raw_fact", args=[erased.id, erased.plan_position])).status_code
        == 410
    )
    assert "request 17" in archivist.get(reverse("effect", args=[erased.id])).text
    _nothing_can_be_done(origin, path, bundle, votes, gates)


def _moves(lanes: dict[str, Any]) -> list[Any]:
    return [
        [
            effect["tool"],
            effect["state"],
            [(step["what"], step["attempt"], step["at_us"]) for step in effect["facts"]],
        ]
        for effect in lanes["effects"]
    ]


def _nothing_can_be_done(
    origin: Origin, path: Path, bundle: ImportedBundle, votes: int, gates: int
) -> None:
    archivist, archive = client_of("archivist"), bundle.project
    assert (archive.name, archive.archive) == ("elsewhere", True)
    assert (Vote.objects.count(), Gate.objects.count()) == (votes, gates)

    assert (
        "harbour drill" in archivist.get(reverse("session_bundle", args=[bundle.session_id])).text
    )
    two = Effect.objects.get(session=bundle.session, effect_key="two")
    assert (two.imported, two.permission, two.permission_basis) == (True, "used", "ruling")
    page = archivist.get(reverse("effect", args=[two.id])).text
    [link] = re.findall(r'href="(/bundles/gates/[^"]+)"', page)
    gate = archivist.get(link).text
    for name in ("ann", "bob"):
        assert f"{name} agrees in INC-204" in gate
        assert ensure_pseudonym(User.objects.get(username=name)) in gate
    assert "approved and used" in gate
    assert not re.search(r"<form[^>]*(answer|decide)", gate)
    assert client_of("neighbour").get(link).status_code == 404  # project isolation
    assert (
        archivist.post(
            reverse("gate_vote", args=[link.split("/")[3]]), {"answer": "approve"}
        ).status_code
        == 404
    )

    lost = Effect.objects.get(session=bundle.session, effect_key="timeout")
    for endpoint in ("resolve", "resolve_confirm"):
        resolution = {"answer": "happened", "rationale": "I saw it with my own eyes", "seen": "x"}
        assert (
            "Imported from a bundle"
            in archivist.post(reverse(endpoint, args=[lost.id]), resolution, follow=True).text
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
    assert (
        "is a read-only archive of imported bundles" in archivist.post(reverse("stop"), stop).text
    )
    for constraint, write in (
        (
            "imported_effect_never_changes",
            lambda: Effect.objects.filter(id=lost.id).update(state="superseded"),
        ),
        (
            "project_kind_never_changes",
            lambda: Project.objects.filter(id=archive.id).update(archive=False),
        ),
        ("imported_effect_is_in_an_archive", lambda: _copied(lost, origin.inbox.project)),
        ("archive_has_no_tokens", lambda: _token_in(origin, archive)),
    ):
        with pytest.raises(DatabaseError, match=constraint), transaction.atomic():
            write()
    assert archivist.post(
        reverse("export_bundle", args=[bundle.session_id]), follow=True
    ).text.count("Share that file")
    again = call_command("import_bundle", str(path), administrator="archivist")
    assert "Nothing was changed" in again
    assert ImportedBundle.objects.count() == 1


def _copied(effect: Effect, project: Project) -> None:
    effect.id, effect.effect_key, effect.project = effect.session_id, "copy", project
    effect.save(force_insert=True)


def _token_in(origin: Origin, archive: Project) -> None:
    token = origin.inbox.organization.token
    token.id, token.public_id, token.project = archive.id, "abcdefgh", archive
    token.save(force_insert=True)


@pytest.mark.matrix
def test_the_same_content_gives_the_same_file_without_names_of_people(
    origin: Origin, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = path.read_bytes()
    endpoint, page = (
        reverse(name, args=[origin.exported.session]) for name in ("export_bundle", "session")
    )
    for name in ("viewer", "reviewer"):
        assert origin.inbox.organization.client(name).post(endpoint).status_code == 403
        assert endpoint not in origin.inbox.organization.client(name).get(page).text
    operator = origin.inbox.organization.client("operator")
    assert endpoint in operator.get(page).text
    assert operator.get(endpoint).status_code == 405
    with monkeypatch.context() as patched:
        patched.setattr(views, "MAX_EFFECTS", 1)
        assert "too many for a download" in operator.post(endpoint, follow=True).text
    assert Entry.objects.filter(kind="access.exported").count() == 1
    origin.inbox.agent.session(
        "another"
    )  # neither other sessions nor readers of the page change the bundle
    ok = origin.effect("ok")
    access_log.record_view(
        ok.project_id, "p_1", "effect", ok.opened_position, of=(ok.session_id, ok.id, ok.id)
    )
    assert origin.export() == first
    cuts = iter(
        [ExportCut(1, 1, 1), ExportCut(2, 2, 2)]
    )  # an entry is written during the first read
    with monkeypatch.context() as patched:
        patched.setattr(zip_writer, "load_cut", lambda entry: next(cuts, None) or load_cut(entry))
        assert origin.export() == first
        numbers = count()
        patched.setattr(zip_writer, "load_cut", lambda _: ExportCut(1, next(numbers), 1))
        taken = Entry.objects.filter(kind="access.exported").count()
        assert "changes faster than it can be exported" in operator.post(endpoint, follow=True).text
        assert Entry.objects.filter(kind="access.exported").count() == taken
    exported = members(first)
    for person in User.objects.exclude(username="reviewer"):  # a role has the same name
        for name, content in exported.items():
            assert not re.search(
                rb'[":, ]%s["@,. ]' % person.username.encode(), _people_free(content)
            ), (person, name)
    document = orjson.loads(exported["bundle.json"])
    viewer = ensure_pseudonym(User.objects.get(username="viewer"))
    started = next(entry for entry in document["entries"] if entry["kind"] == "session.started")
    assert (
        document["on_behalf_of"] == orjson.loads(started["body"]["text"])["on_behalf_of"] == viewer
    )
    assert started["body"]["replaced"] == ["on_behalf_of"]
    assert exported["artifacts/" + hashlib.sha256(REPORT).hexdigest()] == REPORT
    [diff] = [content for name, content in exported.items() if name.startswith("diffs/")]
    assert diff == b"--- a/pay/round.py\n+++ b/pay/round.py\n@@ @@\n a\n-b\n+c\n"
    readme = exported["README.md"].decode()
    assert "\u202e" not in readme
    assert "not on a Friday" in readme
    assert "harbour drill" in readme
    position = origin.effect("ok").plan_position
    erasing = (
        origin.inbox.organization.client("administrator")
        .get(reverse("erase_body", args=[position]))
        .text
    )
    assert "3 exported bundles of its session</b>\nalso contain it" in erasing
    assert "## Unknown outcomes" in readme
    assert re.search(r"- e_\d+ git.push: dispatched with permission bypassed", readme)
    rows = orjson.loads(exported["schema.json"])
    published = Path(settings.BASE_DIR) / "docs" / "bundle.schema.json"
    assert rows == bundle_schema() == orjson.loads(published.read_bytes())
    assert jsonschema_rs.Draft202012Validator(rows).is_valid(document)
    erased = [entry for entry in document["entries"] if entry["body"] and "erased" in entry["body"]]
    assert [entry["body"]["erased"]["reason"] for entry in erased] == ["request 17"]
    assert "text" not in erased[0]["body"]
    origin.inbox.agent.plan("later", str(origin.exported.session), tool="file.read")
    assert origin.export() != first
    assert Session.objects.filter(id=origin.exported.session).exists()


def _people_free(content: bytes) -> bytes:
    """Remove the reasons of the people in the story, whose free text names them."""
    return re.sub(rb"(ann|bob) agrees", b"agrees", content)


def test_pages_of_a_bundle_with_unexpected_facts_answer(origin: Origin, tmp_path: Path) -> None:
    files = members(origin.export())
    document = orjson.loads(files["bundle.json"])
    odd: list[dict[str, Any]] = [
        {"kind": "session.stuck", "facts": {}},
        {"kind": "session.recovered", "facts": {"rule": ["S1"]}},
        {"kind": "gate.assigned", "facts": {"to": "p_0123456789abcdef"}},
        {"kind": "gate.assigned", "facts": {"to": {}}},
        {"kind": "gate.extended", "facts": {"decide_by_us": "soon"}},
        {"kind": "gate.extended", "facts": {"decide_by_us": 1 << 60}},
        {"kind": "access.viewed", "facts": {"what": []}},
    ]
    votes: list[dict[str, Any]] = [
        {"vote": []},
        {"at_us": "x", "first_shown_us": []},
        {"warnings": 5},
        {"warnings": [[]], "proof": {}},
    ]
    odd += [{"kind": "gate.voted", "facts": {"vote": "deny", **vote}} for vote in votes]
    last = document["entries"][-1]["position"]
    template = next(row for row in document["entries"] if row["lane"] == "system")
    for number, changes in enumerate(odd, 1):
        nothing = {"body": None, "commitment": None, "effect": None, "subject": None}
        same = {**template, "of_session": True, "actor": "gatebook", "id": f"odd-{number}"}
        document["entries"].append({**same, **nothing, "position": last + number, **changes})
    document["cut"]["position"] = last + len(odd)
    forged = summed({**files, "bundle.json": orjson.dumps(document)})
    session = imported(packed(forged, tmp_path / "odd.zip")).session
    archivist = client_of("archivist")
    people_page = archivist.get(reverse("session_people", args=[session.id])).text
    assert "to a person without a name here (p_0123456789abcdef)" in " ".join(people_page.split())
    url = reverse("session_timeline", args=[session.id])
    events = archivist.get(url, {"view": "json"}).json()["session_events"]
    assert [row["rule"] for row in events if row["kind"] == "session.stuck"] == [""]
    for query in ({}, {"view": "lanes"}, {"view": "compact"}):
        assert archivist.get(url, query).status_code == 200
    assert archivist.get(reverse("session", args=[session.id])).status_code == 200
