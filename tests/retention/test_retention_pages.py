"""The pages and the command of retention: load, read the counts, put in force; expired texts."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import reverse

from accounts.people import ensure_pseudonym
from db import clock
from db.errors import ChangeRefused
from erasure import erasure_requests
from journal.models import Entry
from ledger.models import Effect
from retention import expiry, retention_dry_run, retention_sets
from retention.models import RetentionSet
from retention.retention_yaml import compute_cutoff_us, compute_expiry_month, parse_retention
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds

RULES = """\
name: test
classes: [{name: short, keep: 30 days}]
rules:
  - {class: short, kind: effect.planned}
"""


def load(organization: Organization, file: Path, text: str = RULES, *options: str) -> str:
    file.write_text(text)
    out = StringIO()
    call_command(
        "load_retention", file, "--project", organization.project.name, *options, stdout=out
    )
    return out.getvalue()


@pytest.mark.usefixtures("one_window")
def test_an_administrator_puts_a_counted_set_in_force(
    organization: Organization,
    sample: SampleIds,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("retention_sets", "views", "expiry", "management.commands.load_retention"):
        module = __import__(f"retention.{name}", fromlist=["now_us"])
        monkeypatch.setattr(module, "now_us", lambda: clock.now_us() + 70 * 86_400 * 1_000_000)
    file = tmp_path / "retention.yaml"
    shown = load(organization, file, RULES, "--dry-run")
    plans = Entry.objects.filter(kind="effect.planned", body__isnull=False).count()
    assert f"now: class short: {plans} bodies" in shown
    assert not RetentionSet.objects.exists()
    assert "texts stay for ever" in load(organization, file)
    row = RetentionSet.objects.get()
    page, client = reverse("retention_set", args=[row.pk]), organization.client("administrator")
    assert organization.client("reviewer").get(page).status_code == 403
    operator = organization.client("operator")
    assert "in force</button>" not in operator.get(page).text
    activate = reverse("activate_retention", args=[row.pk])
    assert operator.post(activate, {"shown": row.counted_at_us}).status_code == 403
    assert f"{plans} texts expire" in " ".join(client.get(page).text.split())
    assert "counted again" in client.post(activate, {"shown": "1"}, follow=True).text
    done = client.post(activate, {"shown": row.counted_at_us}, follow=True)
    assert "is in force" in done.text
    row.refresh_from_db()
    assert row.activated_by == ensure_pseudonym(organization.members["administrator"].user)

    assert expiry.run_retention().bodies == plans
    text = " ".join(client.get(reverse("retention")).text.split())
    named = Entry.objects.get(kind="retention.expired")
    assert f"?at={named.position}" in text
    assert ("Texts are in 5 partitions, ready for" in text) == (connection.vendor == "postgresql")
    effect = Effect.objects.get(id=sample.effects["ok"])
    text = " ".join(client.get(reverse("effect", args=[effect.pk])).text.split())
    assert re.search(r"The text expired on .* \(class short, kept 30 days\)\. <a", text)
    assert "git push origin main" not in text
    raw = client.get(reverse("raw_fact", args=[effect.pk, effect.plan_position]))
    assert raw.status_code == 410
    assert f"The text expired (class short, kept 30 days). Entry {named.position}" in raw.text
    assert "text expired" in " ".join(client.get(reverse("journal")).text.split())

    at = {"at": str(named.position - 1)}  # when the text was still there
    text = " ".join(client.get(reverse("effect", args=[effect.pk]), at).text.split())
    assert "The text expired on" in text
    assert "git push origin main" not in text
    out = StringIO()
    call_command("rebuild", "--check", stdout=out)
    assert re.search(r"ledger_effect.tool of \d+ rows: its body was erased", out.getvalue())
    assert "no row differs from the journal" in out.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "line", "sentence"),
    [
        (("30 days", "29 days"), 2, "at least 30 days"),
        (("30 days", "soon"), 2, "such as 90 days"),
        (("class: short", "class: shrot"), 4, "did you mean `short`"),
        (("effect.planned", "'*.planned'"), 4, "its beginning and one"),
        (("name: short", "name: forever"), 2, "exists already"),
        (("rules:", "rule:"), 3, "unknown key"),
    ],
)
def test_a_fault_names_its_line_and_what_would_be_right(
    organization: Organization, tmp_path: Path, change: tuple[str, str], line: int, sentence: str
) -> None:
    with pytest.raises(CommandError, match=rf":{line}: .*{re.escape(sentence)}"):
        load(organization, tmp_path / "wrong.yaml", RULES.replace(*change))
    assert not RetentionSet.objects.exists()


def test_the_first_rule_that_fits_decides_and_own_entries_stay() -> None:
    from retention.retention_yaml import find_class

    rules = parse_retention(
        "name: a\nclasses: [{name: x, keep: 90 days}, {name: y, keep: 2 years}]\n"
        "rules: [{class: x, kind: effect.*, tool: pay.*}, {class: y, kind: effect.planned}]\n"
        "default: x\n"
    )
    classes = [
        find_class(rules, kind, tool)
        for kind, tool in [
            ("effect.planned", "pay.out"),
            ("effect.planned", "shell"),
            ("effect.planned", None),
            ("note.made", None),
            ("erasure.executed", None),
            ("retention.expired", None),
        ]
    ]
    assert classes == ["x", "y", "y", "x", "forever", "forever"]


@pytest.mark.parametrize("keep", ["30 days", "90 days", "1 month", "13 months", "2 years"])
def test_months_and_cut_offs_agree(keep: str) -> None:
    hour = 3_600 * 1_000_000
    start = 1_709_164_800_000_000  # 29 February 2024
    cutoff = compute_cutoff_us(keep, start)
    assert compute_expiry_month(keep, cutoff) == "2024-02"
    assert compute_expiry_month(keep, cutoff + 1) == "2024-03"
    assert compute_cutoff_us(keep, start + 24 * hour - 1) == cutoff
    assert compute_cutoff_us(keep, start + 24 * hour) > cutoff


def read_page(
    organization: Organization, name: str, *arguments: Any, role: str = "operator"
) -> str:
    page = organization.client(role).get(reverse(name, args=arguments)).text
    return " ".join(page.partition("<main")[2].split())


@pytest.mark.django_db
@pytest.mark.usefixtures("sample", "one_window")
def test_counts_from_before_a_hold_are_counted_anew_and_marked(
    organization: Organization, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command counts again; the page names what came since its count, and how to repeat it."""
    for name in ("retention_sets", "views", "expiry", "management.commands.load_retention"):
        module = __import__(f"retention.{name}", fromlist=["now_us"])
        monkeypatch.setattr(module, "now_us", lambda: clock.now_us() + 70 * 86_400 * 1_000_000)
    file, old = tmp_path / "retention.yaml", "These numbers are old."
    load(organization, file)
    row, by = RetentionSet.objects.get(), organization.members["administrator"].user
    plans = Entry.objects.filter(kind="effect.planned", body__isnull=False).count()
    assert old not in read_page(organization, "retention_set", row.pk)
    hold = erasure_requests.set_legal_hold(
        by, organization.project, reason="case 9", words=["invoice"]
    )
    page = read_page(organization, "retention_set", row.pk, role="administrator")
    assert old in page
    assert "a legal hold was set: <a" in page
    assert f"?at={hold.set_position}#" in page
    assert "By the old numbers above" in page
    assert page.count("Count again</button>") == 1

    shown = load(organization, file, RULES, "--dry-run")
    assert "1 held" in shown
    activated = load(organization, file, RULES, "--activate")
    assert f"now: class short: {plans - 1} bodies" in activated
    assert "1 held" in activated
    row.refresh_from_db()
    assert f"counted now up to entry {row.counted_end}." in activated
    assert old not in read_page(organization, "retention")

    assert expiry.run_retention().bodies == plans - 1
    page = read_page(organization, "retention")
    assert "texts expired: <a" in page
    assert "An administrator can count again." in page
    assert "a legal hold was set" not in page
    erasure_requests.release_legal_hold(hold.pk, organization.project, by)
    page = read_page(organization, "retention", role="administrator")
    assert "a legal hold was released: <a" in page

    counted_at_us = row.counted_at_us
    repeat = reverse("repeat_dry_run", args=[row.pk])
    assert organization.client("operator").post(repeat).status_code == 403
    organization.client("administrator").post(repeat)
    page = read_page(organization, "retention")
    assert "The job counts: 0 % of the journal." in page
    assert "The last count was" in page
    assert "at once" not in page
    with pytest.raises(ChangeRefused, match="not counted yet"):
        retention_sets.activate_retention_set(row.pk, organization.project, counted_at_us)
    (due,) = retention_sets.list_due_dry_runs()
    retention_dry_run.count_retention(due)
    page = read_page(organization, "retention")
    assert old not in page
    assert '<td role="cell" data-label="Texts" class="num">1</td>' in page  # released
    assert retention_sets.list_due_dry_runs() == []


def test_a_set_that_nobody_counted_is_not_put_in_force(organization: Organization) -> None:
    row = retention_sets.load_retention_set(organization.project, RULES)
    assert row.counted_at_us is None
    answer = organization.client("administrator").post(
        reverse("activate_retention", args=[row.pk]), {"shown": ""}, follow=True
    )
    assert "not counted yet" in answer.text
    assert retention_sets.load_active_set(organization.project.pk) is None
