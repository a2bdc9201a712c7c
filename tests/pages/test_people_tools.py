"""Load tools.yaml completely or not at all; a missing tool never becomes less strict."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from accounts.models import Project
from db.yaml_reader import DocumentError
from journal.models import Body, Entry
from ledger.models import Tool
from ledger.tools import cache, registry, tools_yaml
from ledger.tools.tools_yaml import ToolDeclaration
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "tools.yaml"


def load(path: Path, *options: str) -> str:
    out = StringIO()
    call_command("load_tools", str(path), *options, stdout=out)
    return out.getvalue()


def test_the_documented_example_loads(organization: Organization) -> None:
    cache.clear_tool_cache()
    assert "9 tools declared" in load(EXAMPLE)
    push = Tool.objects.get(project=organization.project, name="git.push")
    assert (push.tool_class, push.reversibility, push.deadline_s) == (
        "probeable",
        "irreversible",
        120,
    )
    assert Tool.objects.get(name="Read").reversibility == "read"
    assert (push.probe, push.undo, push.max_attempts, push.max_probes) == (
        True,
        "",
        3,
        5,
    )  # its class can be looked up
    assert Tool.objects.get(name="issue.comment").key_window_s == 86400
    started = Tool.objects.get(name="vm.start")
    assert (started.undo, started.probe, started.max_attempts, started.max_probes) == (
        "reference",
        True,
        2,
        8,
    )
    means = cache.load_tool(organization.project.id, "vm.start").means
    assert (means.cancel_by, means.probe, means.max_attempts, means.max_probes) == (
        "reference",
        True,
        2,
        8,
    )
    assert "No changes" in load(EXAMPLE)
    assert Entry.objects.filter(kind="admin.tools_loaded").count() == 1


def test_a_tool_left_out_falls_back_to_the_strictest_and_is_named(
    organization: Organization, tmp_path: Path
) -> None:
    load(EXAMPLE)
    file = tmp_path / "tools.yaml"
    file.write_text("tools:\n  Read: {class: read_only}\n")
    output = load(file)
    assert "opaque and irreversible from now on: Bash, Write" in output
    assert list(Tool.objects.values_list("name", flat=True)) == ["Read"]
    entry = Entry.objects.filter(kind="admin.tools_loaded").latest("position")
    assert '"removed":["Bash"' in Body.objects.get(entry=entry).text


def test_the_tools_of_other_projects_stay(organization: Organization) -> None:
    registry.declare_tools(organization.other, [ToolDeclaration("Bash", "opaque", "irreversible")])
    registry.declare_tools(organization.project, [ToolDeclaration("Read", "read_only", "read")])
    registry.declare_tools(organization.project, [])
    assert Tool.objects.get().project == organization.other


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Line 1: the text is empty"),
        ("[]", "Line 1: the file must be a mapping"),
        ("tool: {}", "Line 1: the file has the unknown key 'tool'; did you mean `tools`"),
        ("{}", "`tools` is missing"),
        ("tools: [a]", "Line 1: `tools` must be a mapping"),
        ("tools:\n  a: opaque", "Line 2: tool 'a' must be a mapping"),
        ("tools:\n  a: {}", "Line 2: tool 'a' has no `class`"),
        (
            "tools:\n  a:\n    class: magic",
            "Line 3: class of tool 'a' is 'magic'; choose one of read_only",
        ),
        ("tools:\n  a:\n    class: opaque\n    deadline: 3", "Line 4: .*did you mean `deadline_s`"),
        (
            "tools:\n  a:\n    class: opaque\n    deadline_s: 1.5",
            "Line 4: deadline_s of tool 'a' must be a whole number",
        ),
        ("tools:\n  a:\n    class: opaque\n    deadline_s: 0", "Line 4: .*from 1 to 604800"),
        ("tools:\n  a:\n    class: opaque\n    deadline_s: 1:30", "Line 4: .*whole number"),
        ("tools:\n  a:\n    class: opaque\n    deadline_s: yes", "Line 4: .*whole number"),
        (
            "tools:\n  a: {class: opaque, reversibility: read}",
            "Line 2: .*Use `read` with `read_only`",
        ),
        (
            "tools:\n  a: {class: read_only, reversibility: reversible}",
            "Use `read` with `read_only`",
        ),
        (
            "tools:\n  a: {class: opaque}\n  a: {class: idempotency_key}",
            "Line 3: `tools` has `a` twice",
        ),
        (
            "tools:\n  a: {class: opaque, key_window_s: 60}",
            "Line 2: .*key_window_s, but its class is not idempotency_key",
        ),
        ("tools:\n  a: {class: idempotency_key, key_window_s: 0}", "Line 2: .*from 1 to 31536000"),
        ("tools:\n  a: {class: probeable, probe: false}", "Line 2: .*which requires `probe`"),
        (
            "tools:\n  a: {class: idempotent, probe: sometimes}",
            "Line 2: probe of tool 'a' must be true or false",
        ),
        ("tools:\n  a: {class: opaque, probe: true}", "Line 2: .*is opaque but has probe"),
        ("tools:\n  a: {class: opaque, undo: key}", "Line 2: .*is opaque but has undo"),
        (
            "tools:\n  a: {class: compensable, undo: regret}",
            "Line 2: .*choose one of key, reference",
        ),
        (
            "tools:\n  a: {class: idempotency_key, max_attempts: 0}",
            "Line 2: max_attempts of tool 'a' .*from 1 to 100",
        ),
        (
            "tools:\n  a: {class: idempotency_key, max_probes: many}",
            "Line 2: max_probes of tool 'a' must be a whole number",
        ),
        ("tools:\n  1: {class: opaque}", "Line 2: every key of `tools` must be text"),
        ("tools:\n  a: {class: opaque, description: [x]}", "description of tool 'a' must be text"),
        ("tools:\n  a: {class: opaque", "this is not YAML"),
        ("tools:\n  'a\u202e': {class: opaque}", "printable"),
        ("tools: " + "[" * 5000, "cannot be parsed"),
        ("tools:\n  a: &a {class: opaque}\n  b: *a", "Line 3: .*aliases are not supported"),
        ("tools:\n  a: {class: idempotent, probe: yes}", "must be true or false"),
    ],
)
def test_a_faulty_file_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(DocumentError, match=sentence):
        tools_yaml.parse_tools_yaml(text)


def test_nothing_of_a_faulty_file_is_loaded(organization: Organization, tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text("tools:\n  a: {class: opaque}\n  b: {class: magic}\n")
    with pytest.raises(CommandError, match=r"tools.yaml: Line 3: .* Nothing was loaded"):
        load(file)
    assert not Tool.objects.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_named(
    organization: Organization, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "tools.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CommandError, match=r"tools\.yaml"):
        load(file)


def test_a_project_must_exist(organization: Organization) -> None:
    with pytest.raises(CommandError, match="no project 'nowhere'"):
        load(EXAMPLE, "--project", "nowhere")


def test_no_tool_used_means_none_undeclared(organization: Organization) -> None:
    assert registry.list_undeclared_tools(Project.objects.get(name="default")) == []


def test_a_tool_is_stopped_from_its_page_by_those_who_may_stop(organization: Organization) -> None:
    registry.declare_tools(organization.project, [ToolDeclaration("Read", "read_only", "read")])
    link = "?scope=tool&amp;subject=Read"
    assert link in organization.client("reviewer").get("/tools/").content.decode()
    page = organization.client("viewer").get("/tools/").content.decode()
    assert "Read" in page
    assert link not in page
