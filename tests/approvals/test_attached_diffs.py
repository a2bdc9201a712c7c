"""Diffs that an agent recorded for a request, and the paths that it names beside a diff."""

import hashlib
from typing import Any

import pytest
from django.urls import reverse

from approvals.diff.commit_paths import compare_commit_paths
from approvals.diff.from_arguments import extract_changes
from approvals.models import Gate
from approvals.review import attached_diffs
from approvals.review.card import build_card
from investigation.bundles.collect import is_enclosed
from sessions.artifacts import artifact_path
from sessions.models import Artifact
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer
from tests.approvals.test_inbox_facts import fact

PATCH = (
    "--- a/docs/a.md\n+++ b/docs/a.md\n@@ -1 +1 @@\n-old words\n+new words\n"
    "--- a/deploy/production/values.yaml\n+++ b/deploy/production/values.yaml\n"
    "@@ -14 +14 @@\n-replicas: 12\n+replicas: 2\n"
)


def record(inbox: InboxScenario, text: str = PATCH, *, send: bool = True, **fields: Any) -> Any:
    content = text.encode()
    described = {
        "session": "s-1",
        "type": "diff",
        "media_type": "text/x-diff",
        "name": "push.diff",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }
    answer = inbox.agent.post("/artifacts", described | fields)
    assert answer.status_code == 201, answer.text
    artifact = answer.json()
    if send:
        upload = artifact["upload"].removeprefix("/api/v1")
        assert inbox.agent.client.put(upload, content=content).status_code < 300
    return artifact


def plan(inbox: InboxScenario, key: str = "e-1", **arguments: Any) -> Gate:
    return inbox.gate(inbox.plan(key, arguments={"command": "git push origin main"} | arguments))


def test_a_diff_recorded_for_the_effect_is_shown_as_the_agents_statement(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = plan(inbox)
    before = build_card(gate).sha256
    record(inbox, effect=str(gate.effect_id))
    shown = fact(rita, gate, 2)
    assert "recorded by the agent for this request, unverified" in shown
    assert shown.index("deploy/production/values.yaml production values") < shown.index(
        "1 file in docs/"
    )
    assert "Only the recorded diff describes the change." in shown
    assert build_card(gate).sha256 != before  # a vote names what was shown


@pytest.mark.parametrize("name", ["sha256", "handle"])
def test_a_diff_that_the_arguments_name_belongs_to_the_request(
    inbox: InboxScenario, rita: Reviewer, name: str
) -> None:
    inbox.plan("e-0", arguments={"command": "git push origin next"})  # opens the session
    artifact = record(inbox)
    row = Artifact.objects.get(id=artifact["id"])
    named = {"sha256": row.sha256, "handle": str(row)}[name]
    assert "production values" in fact(rita, plan(inbox, diff=named), 2)
    assert build_card(plan(inbox, "e-2", diff="another")).attached == ()


def test_a_diff_named_after_a_pushed_commit_belongs_to_the_request(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.plan("e-0", arguments={"command": "git push origin next"})  # opens the session
    record(inbox, name="9d02a77.diff")
    push = "git push --force-with-lease=main:4be1c9e origin 9d02a77:main"
    assert "production values" in fact(rita, plan(inbox, command=push), 2)
    listed = plan(inbox, "e-2", commits=[{"sha": "9d02a77c0ffee"}])
    assert len(build_card(listed).attached) == 1
    # A removed commit is not what the push changes.
    removed = "git push --force-with-lease=main:9d02a77 origin 4be1c9e:main"
    assert build_card(plan(inbox, "e-3", command=removed)).attached == ()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"send": False}, "its content was not sent"),
        ({"text": "DROP TABLE users;"}, "its content is not a complete patch"),
    ],
)
def test_a_diff_that_cannot_be_shown_is_named(
    inbox: InboxScenario, rita: Reviewer, options: dict[str, Any], why: str
) -> None:
    gate = plan(inbox)
    record(inbox, effect=str(gate.effect_id), **options)
    assert why in fact(rita, gate, 2)


def test_a_long_diff_is_not_read(inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_diffs, "MAX_BYTES", 10)
    gate = plan(inbox)
    record(inbox, effect=str(gate.effect_id))
    (attached,) = build_card(gate).attached
    assert not attached.changes.files
    assert "longer than" in attached.why_not_shown


def test_other_artifacts_are_not_attached(inbox: InboxScenario) -> None:
    gate = plan(inbox)
    record(inbox, effect=str(gate.effect_id), type="log", media_type="text/plain", name="log")
    record(inbox)  # of the session, but named by nothing
    assert build_card(gate).attached == ()


FILES = extract_changes({"patch": PATCH}).files


@pytest.mark.parametrize(
    ("arguments", "only_in_commits", "only_in_diff"),
    [
        ({"commits": [{"sha": "1", "files": ["docs/a.md"]}]}, (),
         ("deploy/production/values.yaml",)),
        ({"commits": [{"sha": "1", "paths": [{"filename": "docs/a.md"}, {"path": "x.py"}]}]},
         ("x.py",), ("deploy/production/values.yaml",)),
        ({"commits": ["1 a"], "files": ["./docs/a.md", "deploy/production/values.yaml"]}, (), ()),
        # Nothing to compare: no commits, no paths, or only removed commits.
        ({"files": ["docs/a.md"]}, (), ()),
        ({"commits": [{"sha": "1"}]}, (), ()),
        ({"removed_commits": [{"sha": "1", "files": ["x"]}]}, (), ()),
    ],
)  # fmt: skip
def test_paths_of_the_commits_are_compared_with_those_of_the_diff(
    arguments: dict[str, Any], only_in_commits: tuple[str, ...], only_in_diff: tuple[str, ...]
) -> None:
    assert compare_commit_paths(arguments, None, FILES) == (only_in_commits, only_in_diff)
    assert compare_commit_paths(arguments, None, ()) == ((), ())


def test_a_path_that_no_commit_names_stands_beside_the_diff(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = plan(inbox, "e-2", commits=[{"sha": "1", "files": ["docs/a.md"]}])
    record(inbox, effect=str(gate.effect_id))
    assert "In the diff, but named by no commit: deploy/production/values.yaml" in fact(
        rita, gate, 2
    )


def test_a_diff_whose_file_was_changed_is_not_shown(inbox: InboxScenario, rita: Reviewer) -> None:
    gate = plan(inbox)
    text = PATCH.replace("replicas: 2", "replicas: 3")  # which no page has read yet
    row = Artifact.objects.get(id=record(inbox, text, effect=str(gate.effect_id))["id"])
    file = artifact_path(row.project_id, row.sha256)
    file.write_text(PATCH.replace("replicas: 2", "replicas: 9"))
    page = fact(rita, gate, 2)
    assert "its stored bytes were changed after they were recorded" in page
    assert "values.yaml" not in page
    viewer = inbox.organization.client("viewer")
    answer = viewer.get(reverse("artifact", args=[row.id]))
    assert answer.status_code == 404
    assert f"The bytes of {row} were changed" in answer.content.decode()
    assert not is_enclosed(row)
    record(inbox, text, effect=str(gate.effect_id))  # the agent sends it again
    assert "production values" in fact(rita, gate, 2)
    assert viewer.get(reverse("artifact", args=[row.id])).status_code == 200
    assert is_enclosed(row)
