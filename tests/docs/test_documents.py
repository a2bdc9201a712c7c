"""The documents are true: links have targets, variables exist, and the quickstart works unchanged."""

import json
import math
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from django.test import Client

from config.variables import VARIABLES
from monitoring.metric_texts import METRICS
from tests.config.server import ROOT, Server
from tests.visual.pictures import SCHEMES

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"\b(?:GATEBOOK_[A-Z_]+[A-Z]|DATABASE_(?:OWNER_)?URL|CELERY_BROKER_URL)\b")


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a rendered document."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.once
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        if link.startswith(("http:", "https:")):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        assert target.exists(), f"{document.name} points to {link}"
        if target.suffix == ".webp":
            assert anchor in ("", "only-light", "only-dark")  # the scheme that shows the picture
        elif anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), (
                f"{document.name} points to {link}"
            )


@pytest.mark.once
def test_the_map_names_every_document() -> None:
    named = set(LINK.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    docs = ROOT / "docs"
    paths = [path for path in docs.rglob("*.md") if path.parent.name != "decisions"]
    there = {str(path.relative_to(docs)) for path in paths} - {"README.md"}
    assert there <= named, f"docs/README.md does not name {there - named}"
    decisions = set(
        LINK.findall((ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8"))
    )
    assert decisions == {path.name for path in (ROOT / "docs" / "decisions").glob("*.md")} - {
        "README.md"
    }


@pytest.mark.once
def test_the_table_has_every_variable_that_is_read_and_no_other() -> None:
    listed = [each.name for group in VARIABLES.values() for each in group]
    documented = {name for name in listed if VARIABLE.fullmatch(name)}
    folders = [path for path in ROOT.iterdir() if path.name not in {".venv", "var", "build"}]
    files = [path for folder in folders if folder.is_dir() for path in folder.rglob("*.py")]
    read = set()
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            if "environ" in line or "_VARIABLE" in line or "_flag(" in line:
                read |= set(VARIABLE.findall(line))
    assert read == documented


@pytest.mark.once
def test_the_status_page_lists_all_twenty_five_systems() -> None:
    text = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| (works|part|not yet) \|", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 26))


# A reviewer who approves the first gate of a project.
APPROVER = """
import time
from approvals.voting import votes
from approvals.models import Gate
from approvals.voting.votes import ShownGate
from db.clock import now_us
from accounts.models import Membership
person = Membership.objects.select_related("project", "user").get(project__name="{project}")
until = time.monotonic() + 60
while (gate := Gate.objects.filter(project=person.project).first()) is None:
    assert time.monotonic() < until, "nobody asked"
    time.sleep(0.05)
shown = ShownGate(gate.version, gate.digest, "0" * 64, True, now_us())
outcome = votes.cast_vote(gate, person, "approve", "as the quickstart says", shown, step_up="typed_digest")
assert outcome.refusal is None, outcome.refusal
"""


def test_the_quickstart_proceeds_where_the_demo_policy_needs_approval(
    live_server_process: Server, tmp_path: Path
) -> None:
    server, text = (
        live_server_process,
        (ROOT / "docs" / "tutorial" / "quickstart.md").read_text(encoding="utf-8"),
    )
    commands = re.findall(r"^\.venv/bin/python manage\.py (.+)$", text, re.MULTILINE)
    printed = [
        server.manage(*line.replace(" admin", f" {server.administrator}").split()).strip()
        for line in commands
    ]
    server.manage("create_project", "with-the-demo", "--administrator", server.administrator)
    policy = str(ROOT / "evaluation" / "demo_policies.yaml")
    server.manage("load_policies", "--project", "with-the-demo", policy, "--activate", "enforce")
    codes = []
    for token in (printed[-1], server.token("first", "--project", "with-the-demo")):
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join(SHELL.findall(text)[:2])],
            cwd=tmp_path,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "URL": server.url, "TOKEN": token},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        codes.append(
            [
                json.loads(line).get("code")
                for line in done.stdout.splitlines()
                if line.startswith("{")
            ]
        )
    assert codes == [[None] * 4, [None, "GATE_PENDING", "NOT_DISPATCHED", None]]


def test_the_quickstart_works_unchanged(live_server_process: Server, tmp_path: Path) -> None:
    text, project = (
        (ROOT / "docs" / "tutorial" / "quickstart.md").read_text(encoding="utf-8"),
        "quickstart",
    )
    blocks = SHELL.findall(text)
    rules = tmp_path / "first-rule.yaml"
    rules.write_text(text.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    live_server_process.run(
        f"""
from django.db import transaction
from accounts import people
from accounts import projects
with transaction.atomic():
    people.add_project_member(projects.create_project("{project}"), "{project}", "reviewer", people.generate_password())
"""
    )
    live_server_process.manage(
        "load_policies", "--project", project, str(rules), "--activate", "enforce"
    )
    token = live_server_process.token("quickstart", "--project", project)
    with ThreadPoolExecutor(1) as pool:
        approving = pool.submit(live_server_process.run, APPROVER.format(project=project))
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join([*blocks, 'echo "RUN=$RUN"'])],
            cwd=tmp_path,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "URL": live_server_process.url,
                "TOKEN": token,
            },
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        approving.result()
    assert done.returncode == 0, done.stderr
    assert f"approve it in the browser ({live_server_process.url}/approvals/" in done.stdout
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [answer["status"] for answer in answers if "title" in answer] == [409], (
        "only the last dispatch is refused"
    )
    assert [answer["answer"] for answer in answers if "attempts" in answer] == ["done"]
    assert [answer["accepted"] for answer in answers if "accepted" in answer] == [3]
    run = done.stdout.rpartition("RUN=")[2].strip()
    effects = httpx.get(
        f"{live_server_process.url}/api/v1/effects",
        params={"session": f"first-{run}"},
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    ).json()["items"]
    states = {effect["effect_key"]: effect["state"] for effect in effects}
    assert states == {
        "greet": "acknowledged",
        "deploy": "acknowledged",
        "look": "acknowledged",
        "pay": "dispatched",
    }


@pytest.mark.once
def test_the_status_page_quotes_the_evaluation_as_it_was_measured() -> None:
    measured = (ROOT / "docs" / "explanation" / "evaluation.md").read_text().splitlines()
    lines = (ROOT / "docs" / "status.md").read_text().splitlines()
    quoted = [line for line in lines if line.startswith(("| session file,", "| Gatebook,"))]
    assert len(quoted) == 5
    assert [line for line in quoted if line not in measured] == []


@pytest.mark.once
def test_numbers_are_the_defaults_of_the_settings() -> None:
    text = (ROOT / "config" / "settings.py").read_text(encoding="utf-8")
    numbers = re.findall(r'(?:int|float)\(os\.environ\.get\("(\w+)"\) or ([\d *]+)\)', text)
    defaults = {each.name: each.default for group in VARIABLES.values() for each in group}
    assert len(numbers) >= 8
    for name, product in numbers:
        number = math.prod(int(factor) for factor in product.split("*"))
        assert number == 0 or int(defaults[name].split()[0]) == number, name


@pytest.mark.django_db
def test_the_metrics_are_those_of_the_table(client: Client) -> None:
    served = re.findall(r"^# HELP (\w+) ", client.get("/metrics").content.decode(), re.MULTILINE)
    assert served == list(METRICS)


@pytest.mark.once
def test_each_screenshot_is_small_and_there_in_both_schemes() -> None:
    folder = ROOT / "docs" / "screenshots"
    names = {path.name for path in folder.iterdir()}
    assert len(names) >= 20
    assert names == {
        f"{name.rpartition('-')[0]}-{scheme}.webp" for name in names for scheme in SCHEMES
    }
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_500_000
    for document in DOCUMENTS:
        shown = re.findall(r"!\[[^\]]*\]\(\S+/screenshots/(\S+)#only-(\w+)\)", document.read_text())
        assert [name for name, _ in shown] == [
            f"{name.rpartition('-')[0]}-{scheme}.webp" for name, scheme in shown
        ]
        assert [scheme for _, scheme in shown] == [*SCHEMES] * (len(shown) // 2)
