"""The effect page: summary, every fact, erased bodies and long bodies."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from db.clock import now_us
from journal.models import Body, Entry
from ledger.models import Effect
from ledger.store import reader, writer
from tests.api.api_client import Caller, new_key
from tests.pages.sample_data import REFERENCE, SampleIds, erase_plan, pass_deadline
from tests.pages.test_inquiry_pages import effect_page, main, viewer, words

__all__ = ["viewer"]
pytestmark = pytest.mark.django_db

BEGINNINGS = [
    ("planned", "permission is granted; no dispatch was reported."),
    ("dispatched", "; no result reported."),
    ("ok", "with outcome ok."),
    ("error", "with outcome error. It finished and reported an error."),
    ("unknown", "with outcome unknown. It may or may not have happened."),
    ("rejected", ": it did not happen."),
    ("timeout", "It may or may not have happened."),
    ("compensated", "the effect that undoes it was acknowledged."),
    ("superseded", "before it was dispatched."),
]


def test_the_effect_page_begins_with_the_known_state(viewer: Client, sample: SampleIds) -> None:
    for name, sentence in BEGINNINGS:
        page = effect_page(viewer, sample, name)
        assert sentence in page
        for never in ("resume safely", "verdict", "STOP"):
            assert never not in page


def test_the_outcome_is_unknown_after_the_deadline(viewer: Client, sample: SampleIds) -> None:
    assert "It may or may not have happened" not in effect_page(viewer, sample, "dispatched")
    pass_deadline(sample.effects["dispatched"])
    page = effect_page(viewer, sample, "dispatched")
    assert "no result reported. It may or may not have happened." in page
    assert "A late report will still be recorded." in page


def test_the_effect_page_shows_keys_target_arguments_result_and_relations(
    viewer: Client, sample: SampleIds
) -> None:
    page = effect_page(viewer, sample, "ok")
    for phrase in (
        REFERENCE,
        "web @ main , production",
        "resource web@main",
        "git push origin main",
        "9d02a77",
        "prod",
    ):
        assert phrase in page, phrase
    assert "undeclared: opaque" in page
    assert "child of this effect" in page
    assert "effect.sniffed unknown kind, ignored" in page
    assert "claims probe" in page
    assert "compensated by this effect" in effect_page(viewer, sample, "undoing")
    assert "compensates this effect" in effect_page(viewer, sample, "compensated")
    assert "It was attempted 2 times." in effect_page(viewer, sample, "rejected")
    assert "report.svg" in effect_page(viewer, sample, "error")


def test_an_effect_without_a_plan_shows_what_is_missing(viewer: Client, sample: SampleIds) -> None:
    stub = Effect.objects.get(effect_key="stub")
    page = words(viewer.get(reverse("effect", args=[stub.id])))
    assert "Its plan has not arrived" in page
    assert "unknown: the plan has not arrived" in page
    assert "plan not arrived" in words(viewer.get(reverse("session", args=[sample.session])))


def test_a_violation_of_permission_stands_out(viewer: Client, sample: SampleIds) -> None:
    Effect.objects.filter(id=sample.effects["ok"]).update(
        permission="bypassed", permission_basis="policy", violates=True
    )
    row = reader.lock_effects([sample.effects["ok"]])[sample.effects["ok"]]
    writer.record_violations([writer.Violation(row, "executed_without_permission")], now_us())
    page = effect_page(viewer, sample, "ok")
    assert "Ran without approval: acknowledged" in page
    notices, _, _ = page.partition("What people saw and did")
    assert "Executed without approval." not in notices  # the headline says so
    assert "1 violation" in words(viewer.get(reverse("session", args=[sample.session])))
    assert "bypassed, policy" in words(viewer.get("/search/?q=permission:bypassed"))


def test_every_fact_is_listed_with_its_body_byte_for_byte(
    viewer: Client, sample: SampleIds
) -> None:
    effect = sample.effects["rejected"]
    facts = list(Entry.objects.filter(effect=effect))
    page = main(viewer.get(reverse("effect", args=[effect])))
    assert len(facts) >= 5
    for entry in facts:
        assert f'id="p{entry.position}"' in page
        raw = viewer.get(reverse("raw_fact", args=[effect, entry.position]))
        assert raw.content == Body.objects.get(entry=entry).text.encode()
        assert raw.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert raw.headers["X-Content-Type-Options"] == "nosniff"
        assert "attachment" in raw.headers["Content-Disposition"]
    other = Entry.objects.exclude(effect=effect).latest("position")
    for position in (other.position, 10**30):
        assert viewer.get(f"/effects/{effect}/facts/{position}/raw/").status_code == 404


def test_erased_bodies_are_marked_everywhere(viewer: Client, sample: SampleIds) -> None:
    position = erase_plan(sample.effects["ok"])
    page = effect_page(viewer, sample, "ok")
    assert "Erased: ticket 88." in page
    assert "git push origin main" not in page
    gone = viewer.get(reverse("raw_fact", args=[sample.effects["ok"], position]))
    assert gone.status_code == 410
    assert "erased" in words(viewer.get(reverse("session", args=[sample.session])))


def test_long_text_is_cut_with_its_size_and_complete_in_the_download(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    long = "x" * 5000 + "\u202e; curl evil"
    planned = agent.plan("long", str(sample.session), tool="shell", arguments={"command": long})
    page = words(viewer.get(reverse("effect", args=[planned["id"]])))
    assert "[cut here: " in page
    assert "curl evil" not in page
    effect = Effect.objects.get(id=planned["id"])
    raw = viewer.get(reverse("raw_fact", args=[effect.id, effect.plan_position]))
    assert long in raw.content.decode()


def test_facts_are_paged_and_each_can_be_reached(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    items = [
        {
            "id": new_key(),
            "kind": "effect.sniffed",
            "session": str(sample.session),
            "effect_key": "planned",
        }
        for _ in range(70)
    ]
    assert agent.report(items).status_code == 200
    url = reverse("effect", args=[sample.effects["planned"]])
    written = Entry.objects.filter(effect=sample.effects["planned"]).count()
    first = main(viewer.get(url))
    older = re.search(r'href="(\?before=\d+)#facts"', first)
    assert older
    second = main(viewer.get(url + older[1]))
    seen = [set(re.findall(r'id="p(\d+)"', page)) for page in (first, second)]
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == written
    oldest = min(map(int, seen[1]))
    assert f'id="p{oldest}"' in main(viewer.get(url, {"fact": oldest}))
