"""Outliers in a set: what stands out, what does not, and how numbers are read."""

import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.outliers import compare_set, find_outliers
from approvals.checks.quantities import parse_quantity
from approvals.inbox.batch_table import BatchRow, build_batch_table
from web.untrusted_text import cut_middle

NOW_US = 1_795_000_000_000_000
SESSION, AGENT = uuid4(), uuid4()


def build_request(number: int, arguments: Any, **fields: Any) -> CheckedRequest:
    """A pending request of one session."""
    return CheckedRequest(
        **{
            "gate": uuid4(),
            "effect": uuid4(),
            "session": SESSION,
            "agent": AGENT,
            "opened_position": number,
            "plan_position": number,
            "requested_at_us": NOW_US + number,
            "tool": "volume.delete",
            "arguments": arguments,
            "preconditions": {},
            "claim": "",
            "repository": "",
            "ref": "",
            "ref_class": "",
            "environment": "",
            "resource": "",
            "reversibility": "reversible",
            "risk": "low",
            "policy_set": None,
            "rule": "volumes",
            "intent_digest": "",
        }
        | fields
    )


def find_by_gate(requests: list[CheckedRequest]) -> dict[UUID, CheckResult]:
    return {request.gate: result for request, result in find_outliers(requests)}


def build_column(name: str, values: list[Any]) -> list[CheckedRequest]:
    """Requests that differ by their volume, and by one argument more."""
    return [build_request(n, {"volume": f"v-{n}", name: value}) for n, value in enumerate(values)]


HITS: dict[str, tuple[str, list[Any], str, str]] = {
    # what: (argument, values with the outlier last, level, what the others have)
    "cluster": ("cluster", ["staging-eu-2"] * 5 + ["prod-eu-1"], "danger", "staging-eu-2"),
    "other cluster": ("cluster", ["staging-eu-2"] * 5 + ["staging-us-1"], "warning", "staging"),
    "three others": ("cluster", ["a", "a", "a", "b"], "warning", "a"),
    "account": ("account_id", ["4711"] * 4 + ["4712"], "warning", "4711"),
    "owner": ("owner", ["team-a"] * 6 + ["team-b"], "warning", "team-a"),
    "environment": ("env", ["staging"] * 3 + ["production"], "danger", "staging"),
    "namespace": ("namespace", ["batch"] * 3 + ["kube-system"], "warning", "batch"),
    "region": ("awsRegion", ["eu-west-1"] * 3 + ["us-east-1"], "warning", "eu-west-1"),
    "tenant": ("tenant", ["north"] * 8 + ["south"], "warning", "north"),
    "database": ("db_name", ["billing_test"] * 4 + ["billing"], "warning", "billing_test"),
    "nested": ("options", [{"cluster": "a"}] * 4 + [{"cluster": "b"}], "warning", "a"),
    "in a list": ("steps", [[{"host": "h1"}]] * 4 + [[{"host": "h2"}]], "warning", "h1"),
    "domain": (
        "to",
        [f"n{n}@northwind.example" for n in range(4)] + ["n@n0rthwind.example"],
        "warning",
        "northwind.example",
    ),
    "domain in a list": (
        "to",
        [[f"n{n}@corp.example"] for n in range(4)] + [["a@evil.example"]],
        "warning",
        "corp.example",
    ),
    "database host": (
        "dsn",
        [f"postgres://u@pg-1.test/t{n}" for n in range(4)] + ["postgres://u@pg-9.test/t9"],
        "warning",
        "pg-1.test",
    ),
    "switch of a command": (
        "command",
        [f"kubectl --context staging delete pvc v{n}" for n in range(4)]
        + ["kubectl --context prod-eu delete pvc v9"],
        "danger",
        "staging",
    ),
    "switch with =": (
        "command",
        [f"gcloud rm d{n} --project=sandbox" for n in range(4)] + ["gcloud rm d9 --project=live"],
        "danger",
        "sandbox",
    ),
    "production in a path": (
        "path",
        [f"deploy/staging/{n}.yaml" for n in range(4)] + ["deploy/production/9.yaml"],
        "danger",
        "no production",
    ),
    "account by iban": ("iban", ["DE8937"] * 4 + ["GB29NW"], "warning", "DE8937"),
    "network": (
        "value",
        [f"192.0.2.{n}" for n in range(4)] + ["203.0.113.66"],
        "warning",
        "192.0.2.0",
    ),
    "every row": (
        "sql",
        [f"DELETE FROM logs_{n} WHERE day < '2020-01-01'" for n in range(4)]
        + ["DELETE FROM logs_9"],
        "danger",
        "with WHERE",
    ),
    "forced": ("force", [False] * 3 + [True], "danger", "false"),
    "deletes more": ("delete_volumes", [False] * 5 + [True], "danger", "false"),
    "no dry run": ("dry_run", [True] * 4 + [False], "danger", "true"),
    "public": ("make_public", [False] * 4 + [True], "warning", "false"),
    "size": ("size", ["20 GiB"] * 2 + ["40 GiB"] * 2 + ["25 GiB", "2,048 GiB"], "warning", "20 to"),
    "size in other units": ("size", ["900 MB", "1 GB", "1.1 GB", "1 TB"], "warning", "900 MB to"),
    "amount": ("amount", [120, 95.5, 80, 140, 4800], "warning", "80 to 140"),
    "amount a digit longer": ("refund", ["40.00"] * 4 + ["4000.00"], "warning", "40.00"),
    "money": ("price", ["$20", "$25", "$30", "$2,500.00"], "warning", "$20 to $30"),
    "european money": (
        "price",
        ["20,00 €", "25,00 €", "30,00 €", "2.500,00 €"],
        "warning",
        "20,00",
    ),
    "currency": ("total", ["20 EUR", "30 EUR", "25 EUR", "25 USD"], "warning", "EUR"),
    "row count": ("rows", [200, 180, 210, 18_412], "warning", "180 to 210"),
    "recipients": ("recipients", [["a"], ["b"], ["c"], ["d"] * 40], "warning", "1 entries"),
    "used a moment ago": (
        "last_mounted",
        ["61 days ago", "34 days ago", "90 days ago", "4 min ago"],
        "warning",
        "34 days ago or more",
    ),
    "used today": (
        "last_used",
        ["2026-01-02", "2026-03-04", "2026-02-11T10:00:00Z", "2026-11-18T10:00:00Z"],
        "warning",
        "days ago or more",
    ),
    "a plain word": ("cabin", ["business"] * 4 + ["economy"], "warning", "business"),
    "a switch of few": ("skip_tests", [False] * 9 + [True], "warning", "false"),
}


@pytest.mark.parametrize("name", HITS)
def test_the_request_that_differs_stands_out(name: str) -> None:
    argument, values, level, others = HITS[name]
    requests = build_column(argument, values)
    results = find_by_gate(requests)
    assert list(results) == [requests[-1].gate]
    result = results[requests[-1].gate]
    assert (result.check, result.level) == ("stands_out", level)
    assert result.concerns.startswith(f"arguments.{argument}")
    assert others in result.sentence, result.sentence
    assert len(result.short) <= 28
    assert result.title.endswith(".")


NEAR_MISSES: dict[str, tuple[str, list[Any]]] = {
    "too few others": ("cluster", ["staging", "staging", "production"]),
    "no majority": ("cluster", ["a", "a", "a", "b", "b"]),
    "two of six": ("region", ["eu"] * 4 + ["us"] * 2),
    "all the same": ("cluster", ["production"] * 6),
    "all different": ("account", ["1", "2", "3", "4", "5"]),
    "names": ("name", ["a", "a", "a", "a", "b"]),
    "one id more": ("order_id", [7, 7, 7, 7, 8]),
    "case only": ("cluster", ["Staging"] * 4 + ["staging"]),
    "product is not production": ("path", ["a/1", "a/2", "a/3", "a/4", "product/5"]),
    "networks that all differ": ("value", [f"192.{n}.2.1" for n in range(5)]),
    "one network": ("cidr", [f"10.20.{n}.0/24" for n in range(5)]),
    "statements of other kinds": ("sql", ["DELETE FROM a", "SELECT 1", "SELECT 2", "SELECT 3"]),
    "prose": ("message", ["done"] * 4 + ["ready for production"]),
    "another title": ("title", ["Same"] * 5 + ["Other"]),
    "a longer text": ("body", ["x"] * 4 + ["x" * 3000]),
    "pages of a site": (
        "url",
        [f"https://docs.example/{n}" for n in range(4)] + ["https://b.example/"],
    ),
    "paths": ("path", ["src/a.py"] * 4 + ["src/b.py"]),
    "lines": ("line", [1, 2, 3, 4, 4000]),
    "offsets": ("offset", [0, 100, 200, 300, 90_000]),
    "timeouts": ("timeout", [10, 10, 10, 10, 600]),
    "timeouts with units": ("timeout", ["10 s"] * 4 + ["1 h"]),
    "issue numbers": ("issue", [3, 4, 5, 6, 7000]),
    "twice the size": ("size", ["20 GiB", "20 GiB", "25 GiB", "40 GiB"]),
    "three times the amount": ("amount", [100, 100, 100, 100, 300]),
    "spread sizes": ("size", ["1 MB", "10 MB", "100 MB", "1 GB", "10 GB"]),
    "small counts": ("count", [1, 1, 1, 1, 9]),
    "a smaller amount": ("amount", [100, 110, 120, 130, 1]),
    "same size in other units": ("size", ["1 GiB", "1024 MiB", "1 GiB", "1 GiB"]),
    "blanks of typography": ("price", ["1\u202f200 €", "1 200 €", "1\u00a0200 €", "1.300 €"]),
    "old things": ("last_used", ["30 days ago", "31 days ago", "33 days ago", "900 days ago"]),
    "one not told": ("cluster", ["a", "a", "a", "a", None]),
    "told once": ("backup", [None, None, None, None, "Fri 02:00"]),
    "a harmless switch": ("verbose", [False] * 5 + [True]),
    "not forced": ("force", [True] * 5 + [False]),
    "only one is harmless": ("dry_run", [False] * 5 + [True]),
    "versions": ("version", ["1.2.3"] * 4 + ["1.2.4"]),
    "addresses of one domain": ("to", [f"n{n}@corp.example" for n in range(6)]),
    "hashes": ("sha", ["4be1c9e"] * 4 + ["9d02a77"]),
    "leading zeros": ("amount", ["0001", "0002", "0003", "9000000"]),
    "a word among four": ("mode", ["fast", "fast", "fast", "slow"]),
    "two words differ": ("mode", ["fast"] * 6 + ["slow", "slower"]),
    "own values": ("snapshot", [f"snap-{n}" for n in range(8)]),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_ordinary_differences_are_quiet(name: str) -> None:
    assert not find_by_gate(build_column(*NEAR_MISSES[name]))


TARGETS: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "environment": ({"environment": "staging"}, {"environment": "production"}, "danger"),
    "repository": ({"repository": "web"}, {"repository": "payments"}, "warning"),
    "ref class": ({"ref_class": "other"}, {"ref_class": "production"}, "danger"),
    "irreversible": ({}, {"reversibility": "irreversible"}, "danger"),
    "compensable": ({}, {"reversibility": "compensable"}, "warning"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_and_reversibility_are_compared_too(name: str) -> None:
    usual, odd, level = TARGETS[name]
    requests = [build_request(n, {"issue": n}, **usual) for n in range(4)]
    requests.append(build_request(9, {"issue": 9}, **odd))
    results = find_by_gate(requests)
    assert [(gate, result.level) for gate, result in results.items()] == [
        (requests[-1].gate, level)
    ]


def test_only_one_shape_of_one_agent_is_compared() -> None:
    listed = build_column("cluster", ["staging"] * 5 + ["production"])
    odd = listed[-1]
    assert find_by_gate(listed)
    for change in (
        {"tool": "volume.create"},
        {"rule": "other"},
        {"agent": uuid4()},
        {"arguments": {"cluster": "production"}},
        {"arguments": None},
        {"session": uuid4(), "requested_at_us": NOW_US + 2 * 3600 * 1_000_000},
    ):
        assert not find_by_gate([*listed[:-1], replace(odd, **change)]), change
    alone = replace(odd, session=uuid4())  # a session of its own, at the same time
    assert list(find_by_gate([*listed[:-1], alone])) == [odd.gate]


def test_one_result_names_all_differences_the_gravest_first() -> None:
    arguments = [{"n": n, "size": "20 GiB", "cluster": "staging"} for n in range(5)]
    listed = [build_request(n, each) for n, each in enumerate(arguments)]
    listed.append(build_request(9, {"n": 9, "size": "2 TiB", "cluster": "prod-1"}))
    (result,) = find_by_gate(listed).values()
    assert result.title == "Stands out: cluster prod-1."
    assert result.sentence == "5 others like it have staging; this one prod-1."
    assert result.concerns == "arguments.cluster"
    assert [(line.label, line.value) for line in result.compared] == [
        ("also", "size 2 TiB"),
        ("others", "20 GiB"),
    ]


def test_the_table_has_what_is_the_same_once_and_what_differs() -> None:
    compared = compare_set(build_column("kind", ["Claim"] * 3))
    assert [(column.name, column.texts[0]) for column in compared.same] == [
        ("kind", "Claim"),
        ("request.reversibility".partition(".")[2], "reversible"),
    ]
    (column,) = compared.columns
    assert (column.name, column.is_distinct, column.texts) == (
        "volume",
        True,
        ("v-0", "v-1", "v-2"),
    )


def test_many_requests_are_compared_in_windows() -> None:
    listed = build_column("cluster", ["staging"] * 60 + ["production"])
    assert list(find_by_gate(listed)) == [listed[-1].gate]


def test_twenty_five_requests_with_thirty_arguments_are_compared_in_few_calls() -> None:
    listed = [
        build_request(
            n,
            {f"own-{k}": f"v{n}-{k}" for k in range(10)}
            | {f"same-{k}": "staging" for k in range(10)}
            | {f"size-{k}": f"{20 + n} GiB" for k in range(8)}
            | {"cluster": "production" if n == 7 else "staging", "to": f"n{n}@corp.example"},
        )
        for n in range(25)
    ]
    calls = Counter[str]()
    sys.setprofile(lambda _frame, event, _argument: calls.update([event]))
    try:
        compared = compare_set(listed)
    finally:
        sys.setprofile(None)
    assert list(compared.outliers) == [listed[7].gate]
    assert calls["call"] + calls["c_call"] < 60_000


@pytest.mark.parametrize(
    ("text", "number", "dimension"),
    [
        ("20 GiB", 20 * 1024**3, "bytes"),
        ("2,048 MB", 2_048_000_000, "bytes"),
        ("20Gi", 20 * 1024**3, "bytes"),
        ("512M", 512_000_000, "bytes"),
        ("61 days", 61 * 86_400, "seconds"),
        ("$1,200.50", 1200.5, "money USD"),
        ("1.234,56 €", 1234.56, "money EUR"),
        ("1 200 EUR", 1200, "money EUR"),
        ("-12.5 USD", -12.5, "money USD"),
        ("30 %", 30, "%"),
        ("18,412 rows", 18_412, "row"),
        (7, 7, ""),
        ("3.5", 3.5, ""),
    ],
)
def test_quantities_are_read(text: Any, number: float, dimension: str) -> None:
    quantity = parse_quantity(text)
    assert quantity is not None
    assert quantity.number == pytest.approx(number)
    assert quantity.dimension == dimension


@pytest.mark.parametrize("text", ["4be1c9e", "0042", "12-34", "9d02a77", "", True, None, [], "Fri"])
def test_ids_and_words_are_no_quantities(text: Any) -> None:
    assert parse_quantity(text, NOW_US) is None


def test_long_values_are_cut_in_the_middle() -> None:
    text = "arn:aws:s3:::" + "x" * 80 + "-production"
    assert cut_middle(text, 48).startswith("arn:aws:s3")
    assert cut_middle(text, 48).endswith("-production")
    assert len(cut_middle(text, 48)) == 48
    assert cut_middle("short", 48) == "short"
    assert cut_middle("customers/" + "x" * 60 + "@northwind-audit.com", 40).endswith(
        "…northwind-audit.com"
    )


def test_the_batch_names_contradicted_phrases_by_letters() -> None:
    claim = "Unused staging volumes, not mounted for 30 days."
    listed = build_column("cluster", ["staging"] * 3 + ["production"])
    listed = [replace(request, claim=claim) for request in listed]
    contradicted = CheckResult(
        "contradiction",
        "danger",
        "not staging",
        "Claim “staging”: production.",
        concerns="arguments.cluster",
        phrase=(7, 14),
    )
    table = build_batch_table(
        [BatchRow(SimpleNamespace(id=request.gate), None) for request in listed],
        listed,
        {listed[-1].gate: [contradicted]},
        frozenset(["volume"]),
    )
    assert table.claim is not None
    assert [(part.text, part.letter) for part in table.claim] == [
        ("Unused ", ""),
        ("staging", "a"),
        (claim[14:], ""),
    ]
    (odd,) = table.apart
    assert odd.why == ("not staging", "stands out: cluster")
    assert odd.beside == ()
    volume, cluster = odd.cells
    assert (volume.level, volume.text) == ("", "v-3")
    assert (cluster.letters, cluster.level, cluster.is_production) == (("a",), "danger", True)
    assert cluster.notes == (("others:", "staging"), ("", "not staging"))
    assert [(column.name, column.is_claimed) for column in table.columns] == [
        ("volume", False),
        ("cluster", True),
    ]
    assert [row.number for row in table.alike] == [1, 2, 3]
    assert table.differ_by == ("volume",)


@pytest.mark.parametrize("amounts", [[1e200, 1e200, 1.1e200, 1e300], [10**60, 10**60, 1, 10**63]])
def test_enormous_numbers_are_compared_without_an_error(amounts: list[float]) -> None:
    results = find_outliers(build_column("amount", amounts))
    assert all(result.check == "stands_out" for _, result in results)
