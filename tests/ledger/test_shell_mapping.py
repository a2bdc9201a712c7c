"""Usage lines of declared tools: read, stored, journaled, shown, used before the default mapping."""

import pytest
from django.core.management import call_command
from django.db import transaction

from db.yaml_reader import DocumentError
from journal.models import Body, Entry
from ledger.models import Tool
from ledger.tools import cache, registry
from ledger.tools.shell_mapping import load_shell_mapping
from ledger.tools.tools_yaml import ToolDeclaration, parse_tools_yaml
from shell.map_command import map_command
from shell.mapping import load_default_mapping
from tests.pages.people import Organization

TEXT = """
tools:
  fleet.resize:
    class: opaque
    shell:
      - fleetctl resize|scale CLUSTER --nodes=NODES -f|--force
  fleet.read:
    class: read_only
    shell: [fleetctl get|list WORDS..., "fleetctl --version!"]
  web.release:
    class: opaque
    shell: ["make release VERSION", "git push production BRANCH"]
"""


def declare(organization: Organization, text: str = TEXT) -> None:
    with transaction.atomic():
        registry.declare_tools(organization.project, parse_tools_yaml(text))
    cache.clear_tool_cache()


@pytest.mark.django_db
def test_declared_lines_come_before_the_default_ones(organization: Organization) -> None:
    declare(organization)
    mapping = load_shell_mapping(organization.project.id)
    assert load_shell_mapping(organization.project.id) is mapping
    resized = map_command("fleetctl -f scale eu --nodes 3", mapping=mapping)
    assert resized.tool == "fleet.resize"
    assert resized.changes_outside
    assert {"cluster": "eu", "nodes": "3", "force": True}.items() <= resized.arguments.items()
    assert not map_command("fleetctl list eu", mapping=mapping).changes_outside
    assert map_command("fleetctl --version", mapping=mapping).tool == "fleet.read"
    assert map_command("fleetctl drop eu", mapping=mapping).tool == "shell.run"
    assert map_command("fleetctl $X", mapping=mapping).tool == "shell.unparsed"
    released = map_command("make release 1.2", mapping=mapping)
    assert (released.tool, released.arguments["version"]) == ("web.release", "1.2")
    assert map_command("make test", mapping=mapping).tool == "shell.code"
    assert map_command("git -C x push -q origin main", mapping=mapping).tool == "git.push"
    assert map_command("git -C x push production main", mapping=mapping).tool == "web.release"


@pytest.mark.django_db
def test_another_project_has_the_default_mapping(organization: Organization) -> None:
    declare(organization)
    assert load_shell_mapping(organization.other.id) is load_default_mapping()


@pytest.mark.django_db
def test_lines_are_stored_and_journaled(organization: Organization) -> None:
    declare(organization)
    tool = Tool.objects.get(project=organization.project, name="fleet.resize")
    assert tool.shell == ["fleetctl resize|scale CLUSTER --nodes=NODES -f|--force"]
    entry = Entry.objects.filter(kind="admin.tools_loaded").latest("position")
    assert "fleetctl resize|scale CLUSTER" in Body.objects.get(entry=entry).text
    assert not registry_changes(organization)
    declare(organization, TEXT.replace("-f|--force", "--force"))
    tool.refresh_from_db()
    assert tool.shell == ["fleetctl resize|scale CLUSTER --nodes=NODES --force"]


def registry_changes(organization: Organization) -> bool:
    with transaction.atomic():
        return bool(registry.declare_tools(organization.project, parse_tools_yaml(TEXT)))


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("shell: []", "is empty"),
        ("shell: fleetctl", "must be a list"),
        ("shell: [fleetctl]", "takes no words; write `fleetctl WORDS...`"),
        ("shell: [FLEET x]", "must begin with the name of a program"),
        ("shell: [/bin/fleet x]", "must begin with the name of a program"),
        ("shell: [fleetctl NAME resize]", "has the word 'resize' after a position"),
        ("shell: [fleetctl A... B]", "after a position that takes all others"),
        ("shell: [fleetctl --x=y]", "has the option '--x=y'"),
        ("shell: [fleetctl COMMAND]", "which every command has"),
        ("shell: [fleetctl x, fleetctl  x]", "has 'fleetctl x' twice"),
        ("shell: [" + "a " * 300 + "]", "longer than 500 characters"),
    ],
)
def test_a_line_that_cannot_be_read_refuses_the_file(line: str, problem: str) -> None:
    with pytest.raises(DocumentError) as fault:
        parse_tools_yaml(f"tools:\n  t:\n    class: opaque\n    {line}\n")
    assert problem in str(fault.value)
    assert fault.value.line == 4


@pytest.mark.django_db
def test_a_line_of_an_older_version_that_cannot_be_read_is_left_out(
    organization: Organization,
) -> None:
    with transaction.atomic():
        registry.declare_tools(
            organization.project,
            [ToolDeclaration("t", "opaque", "irreversible", shell=["", "fleetctl WORDS..."])],  # noqa: S604
        )
    cache.clear_tool_cache()
    mapping = load_shell_mapping(organization.project.id)
    assert map_command("fleetctl x", mapping=mapping).tool == "t"


@pytest.mark.django_db
def test_the_command_explains_with_the_tools_of_the_project(
    organization: Organization, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(organization)
    name = organization.project.name
    call_command("explain_command", "fleetctl resize eu; ls", project=name)
    output = capsys.readouterr().out
    assert output.startswith("tool: fleet.resize\neffect: changes\n")
    assert '1. fleet.resize, changes: "fleetctl resize eu"' in output
    assert '2. shell.read, reads: "ls"' in output
    call_command("explain_command", "fleetctl resize eu", "--default", "--json")
    assert '"tool": "shell.run"' in capsys.readouterr().out


@pytest.mark.django_db
def test_the_page_shows_the_lines_of_a_tool(organization: Organization) -> None:
    declare(organization)
    page = organization.client("viewer").get("/tools/").content.decode()
    assert "Shell commands: <code>fleetctl resize|scale CLUSTER --nodes=NODES" in page
