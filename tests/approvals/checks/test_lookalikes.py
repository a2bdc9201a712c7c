"""Names that look like others: what warns, and what near misses are quiet."""

import re
from dataclasses import replace
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.checks import lookalikes, run_checks
from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.lookalikes import NameFacts, find_lookalikes, load_name_facts
from db.clock import now_us
from journal import erasures
from journal.models import Entry
from ledger.models import Effect, UsedName, UsedNamePlan
from ledger.names import lookalike_letters, name_index, names_of_plan, used_names
from ledger.names.name_lookups import load_near_candidates
from ledger.names.names_of_plan import MAX_PLAN_NAMES, find_plan_names
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer

CYRILLIC_O = "\u043e"
FAKE = f"n{CYRILLIC_O}rthwind-audit.com"


def newest() -> int:
    """Return the position of the newest entry."""
    return Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0


@pytest.fixture
def agent(quiet: InboxScenario, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """An agent of a project without rules; the test's own entries count as settled."""
    quiet.agent.session("s-1")
    return quiet.agent


_keys = iter(range(1_000_000))


def run_effect(agent: Caller, arguments: dict[str, Any], times: int = 1, **fields: Any) -> None:
    """Report effects that ran."""
    items: list[dict[str, Any]] = []
    for _ in range(times):
        number = next(_keys)
        base = {"session": "s-1", "effect_key": f"k-{number}"}
        items += [
            {
                **base,
                "id": f"p-{number}",
                "kind": "effect.planned",
                "tool": "mail.send",
                "arguments": arguments,
                **fields,
            },
            {**base, "id": f"d-{number}", "kind": "effect.dispatched", "attempt": 1},
            {
                **base,
                "id": f"a-{number}",
                "kind": "effect.acknowledged",
                "attempt": 1,
                "outcome": "ok",
            },
        ]
    answer = agent.report(items)
    assert answer.status_code == 200, answer.text


def request_of(agent: Caller, arguments: Any, **fields: Any) -> CheckedRequest:
    """Plan an effect and return it as a request that is checked."""
    planned = agent.plan(f"r-{next(_keys)}", tool="mail.send", arguments=arguments, **fields)
    effect = Effect.objects.get(id=UUID(planned["id"]))
    return build_request(
        arguments,
        effect=effect.id,
        plan_position=effect.plan_position or 0,
        repository=effect.repository.name if effect.repository else "",
        ref=effect.ref,
    )


def build_request(arguments: Any, **columns: Any) -> CheckedRequest:
    """Return a request without a journal."""
    values: dict[str, Any] = {
        "gate": uuid4(),
        "effect": uuid4(),
        "session": uuid4(),
        "agent": uuid4(),
        "opened_position": 100,
        "plan_position": 100,
        "requested_at_us": now_us(),
        "tool": "mail.send",
        "arguments": arguments,
        "preconditions": {},
        "claim": "",
        "policy_set": None,
        **dict.fromkeys(
            ("repository", "ref", "ref_class", "environment", "resource", "reversibility"), ""
        ),
        **dict.fromkeys(("risk", "rule", "intent_digest"), ""),
    }
    return CheckedRequest(**{**values, **columns})


def check(agent: Caller, arguments: Any, **fields: Any) -> list[CheckResult]:
    """Plan a request, read all names before it, and return what the checks of names find."""
    name_index.index_names()
    request = request_of(agent, arguments, **fields)
    project = Effect.objects.get(id=request.effect).project_id
    return list(find_lookalikes(request, load_name_facts(project, [request])))


def kinds(results: list[CheckResult]) -> list[tuple[str, str]]:
    return [(result.check, result.level) for result in results]


def plain_check(arguments: Any, **columns: Any) -> list[CheckResult]:
    """Check a request without any earlier name."""
    return list(find_lookalikes(build_request(arguments, **columns), NameFacts()))


@pytest.mark.django_db
def test_a_lookalike_domain_is_set_under_the_known_one(agent: Caller) -> None:
    run_effect(agent, {"to": ["billing@northwind-audit.com"]}, 3)
    (result,) = check(agent, {"to": [f"billing@{FAKE}"]})
    assert (result.check, result.level, result.short) == (
        "lookalike_letters",
        "danger",
        "lookalike domain",
    )
    assert result.title == "Lookalike domain: 1 letter is Cyrillic."
    assert result.concerns == "arguments.to.0"
    requested, older = result.compared
    assert (requested.label, requested.value, requested.marked) == ("Requested", FAKE, (1,))
    assert requested.note == (
        "First use ever. Letter 2 is Cyrillic o, U+043E."
        " Written xn--nrthwind-audit-vzl.com on the network."
    )
    assert (older.label, older.value, older.marked) == ("Known", "northwind-audit.com", (1,))
    assert older.note == "3 effects since today, last today. Letter 2 is Latin o, U+006F."


@pytest.mark.django_db
def test_a_false_name_that_was_used_in_a_harmless_read_still_warns(agent: Caller) -> None:
    run_effect(agent, {"to": ["a@northwind.com"]}, 5)
    run_effect(agent, {"url": f"https://n{CYRILLIC_O}rthwind.com/"}, 12)
    run_effect(agent, {"url": "https://northwlnd.com/"}, 1)
    assert kinds(check(agent, {"to": [f"a@n{CYRILLIC_O}rthwind.com"]}))[0] == (
        "lookalike_letters",
        "danger",
    )
    results = check(agent, {"to": ["a@northwlnd.com"]})
    assert ("near_name", "danger") in kinds(results) or ("lookalike_letters", "danger") in kinds(
        results
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "/home/документы/отчёт-Q3.pdf"},
        {"path": "/srv/Übersicht/größe.txt"},
        {"path": "/srv/报告：终版/数据.csv"},
        {"path": "/data/データbase.csv"},
        {"command": "git commit -m 'Исправить ошибку в модуле billing'"},
        {"to": ["müller@straße.example"]},
        {"to": ["анна@пример.рф"]},
        {"branch": "feature/données-clés"},
        {"path": "notes/Δt and 5µs.txt"},
        {"sku": "プランA１", "unit": "µm", "label": "σ²", "system": "1С-Битрикс"},
        {"team": "IT-отдел", "name": "Anna Смирнова", "label": "COVID‑19"},
        {"path": "reports/Q3–Q4 10\u2011inch.pdf"},
        {"command": "echo '½ ≈ 0.5 → ok'"},
        {"url": "https://ja.wikipedia.org/wiki/日本語"},
        {"file": "x².md"},
    ],
)
def test_words_in_one_script_are_quiet(arguments: Any) -> None:
    assert plain_check(arguments) == []


@pytest.mark.parametrize(
    ("arguments", "concerns", "title"),
    [
        ({"to": f"a@{FAKE}"}, "arguments.to", "Lookalike domain: 1 letter is Cyrillic."),
        (
            {"url": f"https://api.{FAKE}/v1"},
            "arguments.url",
            "Lookalike domain: 1 letter is Cyrillic.",
        ),
        (
            {"steps": [{"host": f"db.{FAKE}"}]},
            "arguments.steps.0.host",
            "Lookalike domain: 1 letter is Cyrillic.",
        ),
        (
            {"host": "xn--nrthwind-audit-vzl.com"},
            "arguments.host",
            "Lookalike domain: 1 letter is Cyrillic.",
        ),
        (
            {"branch": f"release/pr{CYRILLIC_O}d"},
            "arguments.branch",
            "Lookalike letters in the ref: 1 letter is Cyrillic.",
        ),
        (
            {"file_path": "/etc/ngin\u0445/n\u0435tw.conf"},
            "arguments.file_path",
            "Lookalike letters in the path: 2 letters are Cyrillic.",
        ),
        (
            {"command": f"git push {CYRILLIC_O}rigin main"},
            "arguments.command",
            "Lookalike letters in the command: 1 letter is Cyrillic.",
        ),
        (
            {"cluster": "pr\u03bfd-eu"},
            "arguments.cluster",
            "Lookalike cluster: 1 letter is Greek.",
        ),
        (
            {"repo": "acm\u0435/web"},
            "arguments.repo",
            "Lookalike repository: 1 letter is Cyrillic.",
        ),
        (
            {"url": "https://github.com\u2215login.example/"},
            "arguments.url",
            "Lookalike host: 1 character is not what it looks like.",
        ),
        (
            {"url": "https://\u0440\u0430\u0443\u0440\u0430.com/"},
            "arguments.url",
            "Lookalike domain: a whole word is not Latin.",
        ),
        (
            {"to": "a@lumen-op\u200btics.com"},
            "arguments.to",
            "Lookalike domain: 1 character is not what it looks like.",
        ),
        (
            {"to": "a@lumen\u2010optics.com"},
            "arguments.to",
            "Lookalike domain: 1 character is not what it looks like.",
        ),
        (
            {"iban": "DE89 3704 0044 0532 0130\u200b 00"},
            "arguments.iban",
            "Lookalike letters in the account: 1 character is not what it looks like.",
        ),
        (
            {"package": f"l{CYRILLIC_O}dash"},
            "arguments.package",
            "Lookalike letters in the value: 1 letter is Cyrillic.",
        ),
        (
            {"to": "ann@helvetia-uhren.ch\u200b"},
            "arguments.to",
            "Lookalike letters in the address: 1 character is not what it looks like.",
        ),
        (
            {"body": f"Pay at https://{FAKE}/now"},
            "arguments.body",
            "Lookalike domain: 1 letter is Cyrillic.",
        ),
    ],
)
def test_a_letter_of_another_script_warns_where_it_stands(
    arguments: Any, concerns: str, title: str
) -> None:
    (result,) = plain_check(arguments)
    assert (result.title, result.concerns, result.check) == (title, concerns, "lookalike_letters")
    requested = result.compared[0]
    assert requested.marked
    assert all(not requested.value[at].isascii() for at in requested.marked)


def test_a_user_name_that_looks_like_the_host_is_a_danger() -> None:
    (result,) = plain_check({"url": "https://api.stripe.com:x@evil.example/v1"})
    assert (result.level, result.title) == ("danger", "False host: the call goes to evil.example.")
    assert plain_check({"url": "https://john.doe@git.acme.example/web.git"}) == []
    assert plain_check({"url": "https://ci:secret@registry.acme.example/v2/"}) == []


def test_a_branch_that_looks_like_a_usual_one_is_a_danger() -> None:
    (result,) = plain_check({}, ref="refs/heads/ma\u0131n")
    assert (result.level, result.title) == ("danger", "Lookalike branch: it is not main.")
    assert plain_check({}, ref="refs/heads/maíz") == []


def test_names_of_the_target_are_checked() -> None:
    (result,) = plain_check({}, ref=f"release/pr{CYRILLIC_O}d")
    assert result.concerns == "target.ref"
    (result,) = plain_check(None, repository=f"acme/w{CYRILLIC_O}b")
    assert (result.concerns, result.level) == ("target.repository", "danger")


@pytest.mark.django_db
def test_a_whole_word_in_another_script_that_equals_a_known_name_is_a_danger(
    agent: Caller,
) -> None:
    run_effect(agent, {"cluster": "paypal"}, 2)
    results = check(agent, {"cluster": "\u0440\u0430\u0443\u0440\u0430l"})
    assert kinds(results)[0] == ("lookalike_letters", "danger")
    run_effect(agent, {"cluster": "cope"}, 2)
    results = check(agent, {"cluster": "\u0441\u043e\u0440\u0435"})
    assert kinds(results)[0] == ("lookalike_letters", "danger")
    assert results[0].compared[1].value == "cope"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("older", "requested", "level"),
    [
        ({"to": "a@modern.com"}, {"to": "a@modem.com"}, "danger"),
        ({"to": "a@paypal.com"}, {"to": "a@paypa1.com"}, "danger"),
        ({"to": "a@paypal.com"}, {"to": "a@paypaI.com"}, "danger"),
        ({"cluster": "prod-zero"}, {"cluster": "prod-zer0"}, "danger"),
        ({"repo": "acme/billing"}, {"repo": "acme/bi11ing"}, "danger"),
        ({"to": "billing@northwind.com"}, {"to": "bi11ing@northwind.com"}, "danger"),
    ],
)
def test_letters_and_digits_that_confuse_warn_against_a_known_name(
    agent: Caller, older: Any, requested: Any, level: str
) -> None:
    run_effect(agent, older, 3)
    results = check(agent, requested)
    assert kinds(results)[0] == ("lookalike_letters", level)
    assert results[0].compared[0].marked


@pytest.mark.django_db
def test_letters_and_digits_that_confuse_are_quiet_without_a_known_name(agent: Caller) -> None:
    assert check(agent, {"to": "bi11ing@modem.com", "cluster": "prod-zer0"}) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("older", "requested", "level", "title"),
    [
        (
            {"to": "a@northwind.com"},
            {"to": "a@nortwhind.com"},
            "danger",
            "Almost a known domain: 2 characters are swapped.",
        ),
        (
            {"to": "a@northwind.com"},
            {"to": "a@northwindd.com"},
            "danger",
            "Almost a known domain: 1 character differs.",
        ),
        (
            {"url": "https://api.northwind.com/"},
            {"url": "https://api.nortwind.com/"},
            "warning",
            "Almost a known domain: 1 character differs.",
        ),
        (
            {"iban": "DE89 3704 0044 0532 0130 00"},
            {"iban": "DE89370400440532013100"},
            "danger",
            "Almost a known account: 1 character differs.",
        ),
        (
            {"account_id": 123456789012},
            {"account_id": 123456798012},
            "danger",
            "Almost a known account: 2 characters are swapped.",
        ),
        (
            {"account_id": "123456789012"},
            {"account_id": "129456789712"},
            "danger",
            "Almost a known account: 2 characters differ.",
        ),
        (
            {"repo": "acme/billing"},
            {"repo": "acme/biling"},
            "warning",
            "Almost a known repository: 1 character differs.",
        ),
        (
            {"cluster": "production"},
            {"cluster": "prodcution"},
            "warning",
            "Almost a known cluster: 2 characters are swapped.",
        ),
        (
            {"command": "kubectl --context production get pods"},
            {"command": "kubectl --context=producton delete ns x"},
            "warning",
            "Almost a known cluster: 1 character differs.",
        ),
        (
            {"to": "a@northwind.com"},
            {"to": "a@northwind.co"},
            "warning",
            "Other ending of a known domain: .co, not .com.",
        ),
        (
            {"to": "a@northwind.com"},
            {"to": "a@northwind-billing.com"},
            "warning",
            "A known domain with another word: northwind-billing, not northwind.",
        ),
        (
            {"to": "a@peña-hermanos.es"},
            {"to": "a@pena-hermanos.es"},
            "danger",
            "Almost a known domain: 1 character differs.",
        ),
        (
            {"to": "a@brightwater.com"},
            {"to": "a@bri\u0301ghtwater.com"},
            "danger",
            "Almost a known domain: 1 character differs.",
        ),
        (
            {"to": "a@acme.com"},
            {"to": "a@acme.co"},
            "warning",
            "Other ending of a known domain: .co, not .com.",
        ),
        (
            {"dsn": "postgres://u@db.northwind.com/x"},
            {"dsn": "postgres://u@db.northwind.co/x"},
            "warning",
            "Other ending of a known domain: .co, not .com.",
        ),
        (
            {"to": "a@northwind.com"},
            {"to": "a@northwind.com.secure-login.net"},
            "warning",
            "Begins as a known domain: it belongs to secure-login.net.",
        ),
        (
            {"repo": "acme/payments"},
            {"repo": "acne/payments"},
            "warning",
            "Almost a known repository: 1 character differs.",
        ),
    ],
)
def test_a_new_name_near_a_known_one_warns(
    agent: Caller, older: Any, requested: Any, level: str, title: str
) -> None:
    run_effect(agent, older, 4)
    results = check(agent, requested)
    warnings = [result for result in results if result.is_warning]
    assert [(r.check, r.level, r.title) for r in warnings] == [("near_name", level, title)]
    assert [line.label for line in warnings[0].compared] == ["Requested", "Known"]
    assert warnings[0].compared[0].note == "First use ever."


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("older", "requested"),
    [
        ({"cluster": "web-1"}, {"cluster": "web-2"}),
        ({"cluster": "prod-eu-1"}, {"cluster": "prod-eu-2"}),
        ({"cluster": "prod-eu"}, {"cluster": "prod-us"}),
        ({"cluster": "staging"}, {"cluster": "staging-2"}),
        ({"bucket": "reports-2025"}, {"bucket": "reports-2026"}),
        ({"database": "app"}, {"database": "apq"}),
        ({"account": "4711"}, {"account": "4712"}),
        ({"repo": "acme/web-api"}, {"repo": "acme/web-app"}),
        ({"url": "https://api.acme-tools.com"}, {"url": "https://app.acme-tools.com"}),
        ({"to": "jon@acme-tools.com"}, {"to": "john@acme-tools.com"}),
        ({"url": "https://example-site.org"}, {"url": "https://example-site.com"}),
        ({"database": "billing"}, {"database": "shipping"}),
        ({"to": "a@acme.com"}, {"to": "a@acne-clinic.com"}),
        ({"to": "a@acme.com"}, {"url": "https://acme.com.s3.amazonaws.com/x"}),
        ({"to": "a@acme.com"}, {"to": "a@mail.acme.com"}),
        ({"repo": "acme/payments"}, {"repo": "beta/payments"}),
    ],
)
def test_series_codes_short_names_and_subdomains_are_quiet(
    agent: Caller, older: Any, requested: Any
) -> None:
    run_effect(agent, older, 4)
    assert [result for result in check(agent, requested) if result.is_warning] == []


@pytest.mark.django_db
def test_a_series_of_near_accounts_is_quiet(agent: Caller) -> None:
    for number in (1, 3, 5, 7):
        run_effect(agent, {"account_id": f"1000200{number}"}, 2)
    assert [r for r in check(agent, {"account_id": "10002009"}) if r.is_warning] == []


@pytest.mark.django_db
def test_the_older_name_is_never_the_lookalike(agent: Caller) -> None:
    run_effect(agent, {"to": "a@northwind.com"}, 3)
    run_effect(agent, {"to": "a@nortwhind.com"}, 9)
    assert [r for r in check(agent, {"to": "a@northwind.com"}) if r.is_warning] == []
    assert [r.check for r in check(agent, {"to": "a@nortwhind.com"}) if r.is_warning] == [
        "near_name"
    ]


@pytest.mark.django_db
def test_a_name_that_is_used_as_much_for_long_is_known(agent: Caller) -> None:
    run_effect(agent, {"to": "a@northwind.com"}, 12)
    run_effect(agent, {"to": "a@nortwhind.com"}, 12)
    assert check(agent, {"to": "a@nortwhind.com"}) == []


@pytest.mark.django_db
def test_first_use_of_a_recipients_domain_account_and_cluster(agent: Caller) -> None:
    run_effect(agent, {"to": "a@northwind.com", "account_id": "acct-blue", "cluster": "alpha"}, 3)
    results = check(agent, {"to": "x@contoso.org", "account_id": "own-red", "cluster": "omega"})
    assert [(r.level, r.short, r.title, r.concerns) for r in results] == [
        ("notice", "first use of domain", "First use of domain contoso.org.", "arguments.to"),
        ("notice", "first use of account", "First use of account own-red.", "arguments.account_id"),
        ("notice", "first use of cluster", "First use of cluster omega.", "arguments.cluster"),
    ]
    # A request that never ran leaves it the first use.
    assert len(check(agent, {"to": "x@contoso.org"})) == 1
    run_effect(agent, {"to": "x@contoso.org"})
    assert check(agent, {"to": "y@contoso.org"}) == []


@pytest.mark.django_db
def test_the_first_name_of_a_project_and_names_that_are_always_new_are_quiet(
    agent: Caller,
) -> None:
    assert check(agent, {"to": "x@contoso.org"}) == []
    for number in range(12):
        run_effect(agent, {"account": f"customer-{chr(97 + number) * 5}"})
    assert check(agent, {"account": "customer-zzzzz"}) == []


@pytest.mark.django_db
def test_no_first_use_is_claimed_while_earlier_plans_are_not_read(agent: Caller) -> None:
    run_effect(agent, {"to": "a@northwind.com"}, 3)
    name_index.index_names()
    run_effect(agent, {"to": "a@contoso.org"}, 3)
    request = request_of(agent, {"to": "b@contoso.org"})
    project = Effect.objects.get(id=request.effect).project_id
    assert list(find_lookalikes(request, load_name_facts(project, [request]))) == []
    name_index.index_names()
    assert list(find_lookalikes(request, load_name_facts(project, [request]))) == []
    assert UsedName.objects.get(kind="mail_domain", name="contoso.org").uses == 4


@pytest.mark.django_db
def test_names_of_other_projects_do_not_count(agent: Caller, quiet: InboxScenario) -> None:
    run_effect(agent, {"to": "a@northwind.com"}, 4)
    name_index.index_names()
    request = request_of(agent, {"to": "a@nortwhind.com"})
    other = quiet.organization.other
    assert list(find_lookalikes(request, load_name_facts(other.id, [request]))) == []


@pytest.mark.django_db
def test_the_number_of_queries_does_not_depend_on_the_page(agent: Caller) -> None:
    run_effect(agent, {"to": "a@northwind.com", "cluster": "production"}, 4)
    name_index.index_names()
    requests = [
        request_of(agent, {"to": f"a@nortwhin{letter}.com", "cluster": f"prodution{letter}"})
        for letter in "abcdefgh"
    ]
    project = Effect.objects.get(id=requests[0].effect).project_id
    counts = []
    for part in (requests[:1], requests):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            run_checks.check_requests(project, part)
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.django_db
def test_names_that_only_an_erased_plan_used_are_gone(agent: Caller) -> None:
    run_effect(agent, {"to": "jane@private.example", "cluster": "alpha"})
    run_effect(agent, {"cluster": "alpha"})
    name_index.index_names()
    assert UsedName.objects.filter(name__contains="private.example").count() == 3
    entry = Entry.objects.filter(kind="effect.planned").order_by("position").first()
    assert entry is not None
    with transaction.atomic():
        erasures.erase_body(
            entry.project, entry.position, reason="request 17", actor="p_1", now_us=now_us()
        )
    assert list(UsedName.objects.values_list("name", flat=True)) == ["alpha"]
    assert UsedNamePlan.objects.filter(position=entry.position).count() == 0
    name_index.reset_name_index()
    name_index.index_names()
    assert list(UsedName.objects.values_list("name", flat=True)) == ["alpha"]


@pytest.mark.django_db
def test_the_job_reads_each_plan_once_and_again_after_a_reset(agent: Caller) -> None:
    run_effect(agent, {"to": "a@northwind.com"}, 3)
    assert name_index.index_names() == 3
    assert name_index.index_names() == 0
    run_effect(agent, {"to": "a@northwind.com"}, 10)
    assert name_index.index_names() == 10
    name = UsedName.objects.get(kind="mail_domain")
    assert (name.uses, name.plans.count()) == (13, used_names.MAX_LINKED_PLANS)
    before = UsedName.objects.values_list("kind", "name", "uses", "first_position").order_by("id")
    was = list(before)
    name_index.reset_name_index()
    assert not UsedName.objects.exists()
    name_index.index_names()
    assert list(before) == was


@pytest.mark.django_db
def test_card_and_list_show_the_lookalike(
    inbox: InboxScenario, rita: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.agent.session("s-1")
    run_effect(inbox.agent, {"to": ["billing@northwind-audit.com"]}, 3)
    name_index.index_names()
    gate = inbox.gate(inbox.plan("x", arguments={"command": "send", "to": f"a@{FAKE}"}))
    page = rita.page(f"/approvals/{gate.id}/")
    assert "Lookalike domain: 1 letter is Cyrillic." in page
    assert "3 effects since today" in page
    assert "lookalike domain" in rita.page("/approvals/")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"command": "kubectl config use-context prod-eu"}, {("cluster", "prod-eu")}),
        (
            {"command": "psql -h db.acme.com -d app"},
            {("host", "db.acme.com"), ("domain", "acme.com")},
        ),
        ({"account_no": "1234-5678-9012"}, {("account", "123456789012")}),
        ({"payee_iban": "CH93 0076 2011"}, set()),
        ({"payeeIban": "CH9300762011623852957"}, {("account", "ch9300762011623852957")}),
        ({"account": 123456789012}, {("account", "123456789012")}),
        ({"arn": "arn:aws:iam::123456789012:role/x"}, {("account", "123456789012")}),
        ({"path": "s3://acme-backup/x"}, {("bucket", "acme-backup")}),
        (
            {"dsn": "postgres://u:p@db.acme.co.uk:5432/billing?x=1"},
            {("host", "db.acme.co.uk"), ("domain", "acme.co.uk"), ("database", "billing")},
        ),
        (
            {"remote": "git@github.com:acme/web.git"},
            {("host", "github.com"), ("domain", "github.com"), ("repository", "acme/web")},
        ),
        ({"remote": "origin", "context": "3", "url": "http://localhost:8000/x"}, set()),
        ({"file": "def f(self): ...\n@app.route('/a')\n", "version": "pkg@1.2.3"}, set()),
        ({"deep": {"a": [{"kube_context": "prod-1"}]}}, {("cluster", "prod-1")}),
    ],
)
def test_names_are_found_by_argument_and_by_shape(
    arguments: Any, names: set[tuple[str, str]]
) -> None:
    plan_names = find_plan_names(arguments)
    assert {(name.kind, name.folded) for name in plan_names} == names


def test_names_of_hostile_plans_are_bounded() -> None:
    many = {"to": [f"a{n}@b{n}.com" for n in range(5_000)]}
    assert len(find_plan_names(many)) == MAX_PLAN_NAMES
    deep: Any = "https://deep.example"
    for _ in range(40):
        deep = {"x": deep}
    assert find_plan_names(deep) == ()
    for text in ("a." * 20_000, "a@" * 20_000, "x://" * 9_000, "git@a.com:" + "/a" * 20_000):
        assert len(find_plan_names({"command": text})) <= MAX_PLAN_NAMES


def test_results_are_bounded_and_short() -> None:
    results = plain_check({"to": [f"a@{letter}n{CYRILLIC_O}rth.com" for letter in "abcdefghijkl"]})
    assert len(results) == lookalikes.MAX_RESULTS
    assert all(len(result.short) <= 28 for result in results)
    assert {result.check for result in results} <= run_checks.CHECKS.keys()


def test_an_erased_plan_has_no_results() -> None:
    assert plain_check(None) == []
    assert list(find_lookalikes(replace(build_request({}), arguments=None), NameFacts())) == []


def test_skeletons_of_ascii_are_those_of_the_table_of_all_letters() -> None:
    letters = [chr(code) for code in range(128)]
    for text in (*letters, *map("".join, product(letters, repeat=2)), 'rnvvMm0O1Il|%"`'):
        slow = lookalike_letters._translate_letters(text)
        slow = slow.replace("vv", "w").replace("0", "o").replace("1", "l")
        assert lookalike_letters.compute_skeleton(text) == slow, text


@pytest.mark.parametrize(
    "text",
    [
        "see https://a.example/x, http://b.example and ftp://c.example:21/d",
        "https://https://a.example",
        "x" * 40 + "://a.example",
        "a.b-c+" * 9 + "http://a.example",
        ":// http:// ://x https://a.example",
        "1http://a.example _http://b.example -http://c.example",
        "postgres://u:p@h.example/d,redis://r.example",
        "git+ssh://git@github.com/acme/web.git://x",
    ],
)
def test_urls_are_those_that_a_search_of_the_whole_text_finds(text: str) -> None:
    whole = [match.span() for match in names_of_plan._URL_SHAPE.finditer(text)]
    assert [match.span() for match in names_of_plan._iterate_urls(text)] == whole


@pytest.mark.django_db
def test_only_names_that_were_used_often_enough_are_candidates(agent: Caller) -> None:
    run_effect(agent, {"to": "a@northwind.com"}, 2)
    run_effect(agent, {"to": "a@northwand.com"})
    name_index.index_names()
    project = UsedName.objects.values_list("project", flat=True)[0]
    for least, expected in ((1, {"northwind.com", "northwand.com"}), (2, {"northwind.com"})):
        names = load_near_candidates(project, [("domain", "northwend")], least)
        assert {stored.name for stored in names} == expected


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("written", "shown", "usual"),
    [
        ("DE89370400440530213000", "DE89370400440530213000", "DE89370400440532013000"),
        ("DE89 3704 0044 0530 2130 00", "DE89370400440530213000", "DE89370400440532013000"),
        ("de89370400440530213000", "de89370400440530213000", "de89370400440532013000"),
    ],
)
def test_an_account_is_shown_in_the_case_in_which_it_was_written(
    agent: Caller, written: str, shown: str, usual: str
) -> None:
    run_effect(agent, {"iban": "DE89370400440532013000"}, 3)
    (result,) = check(agent, {"iban": written})
    requested, older = result.compared
    assert (requested.value, older.value) == (shown, usual)
    assert [shown[at] for at in requested.marked] == ["0", "2"]


def test_the_overview_marks_letters_that_look_like_others(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: require}\n")
    inbox.plan(tool="mail.send", arguments={"to": f"audit@{FAKE}", "subject": "The report"})
    pages = [rita.page(url) for url in (reverse("home"), reverse("inbox"))]
    titles = [re.findall(r"<h3>.*?</h3>", page, re.DOTALL)[0] for page in pages]
    marked = f'<mark class="odd">{CYRILLIC_O}</mark>'
    assert all(marked in title for title in titles), titles
