"""Pages: session page, search and saved questions, on databases of several sizes."""

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Final
from urllib.parse import urlencode

from evaluation.bench import bulk_seed, clients, procfs, search
from evaluation.bench.installation import Installation, Server, clone, serve
from evaluation.bench.person import Person
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import Writer

COMPARED: Final = "session page"  # the largest database against the smallest
SELDOM: Final = 4  # the other pages of smaller databases are read every SELDOM turns
PAGE_RATIO_BAR: Final = 2.0
SEARCH_BARS: Final = {50: 20.0, 95: 60.0}  # ms at the largest size on PostgreSQL, by percentile
QUERIES_BAR: Final = 12
QUESTION_BAR_MS: Final = 250.0  # p95 at the largest size
WORDS_BAR_MS: Final = 100.0  # the same
SIZE_BAR_KB: Final = 150
MEASURED_EFFECTS: Final = 1_000
SEARCHES: Final = {
    "failed of one tool, last 24 h": "state:failed tool:git.push since:24h",
    "failed of one tool": "state:failed tool:git.push",
    "one tool": "tool:http.request",
    "outcome error": "outcome:error",
    "never answered": "state:unknown",
    "one repository": "repository:acme/shop-2",
    "production refs": "ref_class:production",
    "an external reference": "reference:https://forge.example/pulls/seed/1001~1",
    "one session, one tool": "session:bench-measured-0 tool:bash",
    "last 50 of everything": "",
}
# The seventeen built-in questions, with parameters.
QUESTIONS: Final = {
    1: "session status:failed failing_tool:git.push since:7d",
    2: "gate is:waiting",
    3: "effect attempts:>1 since:30d | group repository | count, max(attempts) | top 20",
    4: "exemption granted:7d | group rule,granter | count, sum(uses)",
    5: "effect ref_class:production attempts:>0 since:7d",
    6: "effect is:unknown",
    7: "effect permission:bypassed",
    8: "gate is:self_approved",
    9: "gate ruling:approved ruled_in:<2s | group approver | count | top 20",
    10: "exemption ( used:>@expires OR used:>@revoked )",
    11: "event kind:integrity.conflict since:7d",
    12: "event kind:[integrity.gap,integrity.fenced]",
    13: "gate effect:{effect}",
    14: "effect chain:https://forge.example/pulls/seed/1001~1",
    15: "effect is:violating any(gate: ruling:approved) (intent:!@approved_intent OR any(event: "
    "violation:key_reuse))",
    16: "session resumes:>3",
    17: "event actor:{person} since:24h",
}
WORDS: Final = {
    "in many effects": "push",
    "two words": "push origin",
    "a prefix": "topi*",
    "in no effect": "zanzibar",
}


def measure(
    report: Report,
    small: Installation,
    *,
    rounds: int,
    reads: int,
    sizes: tuple[int, ...],
    batches: int,
) -> None:
    """Read every page `reads` times a round from databases of `sizes` effects, in turns.

    `small` must be fresh; it and its copies are filled. `batches` is the number per client that writes
    during the costly queries.
    """
    vendor = small.vendor
    plans = bulk_seed.plan_fillings(sizes)
    token = small.issue_token("bench")
    bulk_seed.raise_positions(small, plans[0].first)
    with serve(small) as server:
        bulk_seed.post_seed(server, token, plans[0].seed)
    small.manage("update_search_index")
    copies = [small, *(clone(small, f"of-{size}") for size in sizes[1:])]
    for installation, filling in zip(copies, plans, strict=True):
        started = time.monotonic()
        bulk_seed.copy_seed(installation, filling)
        sys.stderr.write(
            f"{vendor}: {filling.effects:,} effects filled in {time.monotonic() - started:.0f} s\n"
        )
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(copy)) for copy in copies]
        for server in servers:
            _post_measured(server, token)
        readers = {
            size: _Reader(server, warm=min(3, reads))
            for size, server in zip(sizes, servers, strict=True)
        }
        seen, cpu = _read_pages(readers, rounds=rounds, reads=reads)
        _add_figures(report, vendor, seen, cpu, sizes)
        _add_sizes(report, readers)
        search.measure_costly_queries(
            report, servers[-1], token, rounds=min(rounds, 2), batches=batches
        )


def _post_measured(server: Server, token: str) -> None:
    writer = Writer("measured", sessions=1, rich=True)
    batches = []
    while writer.effects < MEASURED_EFFECTS:
        batches += writer.mixed(1)
    clients.run_together([clients.post_batches(server.port, token, batches)])


Seen = dict[tuple[str, int], list[list[float]]]  # (page, size) -> rounds of milliseconds
Cpu = dict[
    tuple[str, int], list[float]
]  # the same -> CPU milliseconds of the web server per read, by rounds


def _read_pages(readers: dict[int, "_Reader"], *, rounds: int, reads: int) -> tuple[Seen, Cpu]:
    seen: Seen = {}
    cpu: Cpu = {}
    for number in range(rounds):
        sys.stderr.write(f"reading, round {number + 1} of {rounds}\n")
        for what in next(iter(readers.values())).pages:
            spent: dict[int, list[float]] = {size: [] for size in readers}
            before = {size: procfs.cpu_s([reader.server.web]) for size, reader in readers.items()}
            for turn in range(reads):
                for size, reader in readers.items():
                    if turn % _read_interval(what, size, readers):
                        continue
                    started = time.perf_counter()
                    reader.pages[what]()
                    spent[size].append(1000 * (time.perf_counter() - started))
            for size, values in spent.items():
                seen.setdefault((what, size), []).append(values)
                used = procfs.cpu_s([readers[size].server.web]) - before[size]
                cpu.setdefault((what, size), []).append(1000 * used / len(values))
    return seen, cpu


def _read_interval(what: str, size: int, sizes: Collection[int]) -> int:
    """Return every how many turns a page is read; smaller databases need only a median."""
    return 1 if what == COMPARED or size == max(sizes) else SELDOM


class _Reader:
    """The pages of one installation by name, each with a function that reads it."""

    def __init__(self, server: Server, warm: int) -> None:
        self.server = server
        installation = server.installation
        person = Person(server.port, installation.administrator, installation.password)
        api = clients.Api(server.port, installation.issue_token("reader"))
        (newest,) = json.loads(api.get("/api/v1/effects?session=bench-measured-0&limit=1"))["items"]
        effect, session = newest["id"], newest["session"]
        self.pages: dict[str, Callable[[], bytes]] = {
            COMPARED: lambda: person.get(f"/sessions/{session}/"),
            "effect page": lambda: person.get(f"/effects/{effect}/"),
            "sessions list": lambda: person.get("/sessions/"),
            "API: failed of one tool": lambda: api.get(
                "/api/v1/effects?state=failed&tool=git.push&limit=50"
            ),
        }
        for name, query in SEARCHES.items():
            self.pages[f"search: {name}"] = partial(
                person.get, f"/search/?{urlencode({'q': query})}"
            )
            parameters = urlencode({"q": query or "effect"})  # the API accepts no empty query
            self.pages[f"API search: {name}"] = partial(api.get, f"/api/v1/search?{parameters}")
        for number, query in QUESTIONS.items():
            filled = query.format(effect=effect, person=installation.administrator)
            self.pages[f"question {number}"] = partial(
                person.get, f"/search/?{urlencode({'q': filled})}"
            )
        for name, query in WORDS.items():
            self.pages[f"words, {name}"] = partial(
                person.get, f"/search/?{urlencode({'q': query})}"
            )
        everything = urlencode({"q": "tool:git.push", "part": "overview"})
        self.pages["facets and bars"] = partial(person.get, f"/search/?{everything}")
        for page in self.pages.values():  # unmeasured, once per worker
            for _ in range(warm):
                page()
        text = self.pages["search: failed of one tool"]()
        if re.search(rb"/effects/[0-9a-f-]{36}/", text) is None:
            raise RuntimeError("the search has no results to measure")


def _add_figures(report: Report, vendor: str, seen: Seen, cpu: Cpu, sizes: tuple[int, ...]) -> None:
    for what in dict.fromkeys(name for name, _ in seen):
        for size in sizes:
            title = f"{what}, {size:,} effects"
            for share in (50, 95) if _read_interval(what, size, sizes) == 1 else (50,):
                values = [percentile(values, share / 100) for values in seen[what, size]]
                bar = find_bar(vendor, what, share) if size == sizes[-1] else None
                report.add(vendor, f"{title}: p{share}", "ms", values, bar=bar)
            report.add(vendor, f"{title}: CPU of the web server", "ms", cpu[what, size])
        if what == COMPARED:
            pairs = zip(seen[what, sizes[-1]], seen[what, sizes[0]], strict=True)
            ratios = [percentile(large, 0.5) / percentile(small, 0.5) for large, small in pairs]
            report.add(
                vendor,
                f"{what}: {sizes[-1]:,} against {sizes[0]:,}",
                "×",
                ratios,
                bar=PAGE_RATIO_BAR,
            )


def find_bar(vendor: str, what: str, share: int) -> float | None:
    """Return the bar of a page's percentile at the largest size, in milliseconds."""
    if what.startswith(("search: ", "API search: ")):
        return SEARCH_BARS[share] if vendor == "postgresql" else None
    if share == 95 and what.startswith("question "):
        return QUESTION_BAR_MS
    return WORDS_BAR_MS if share == 95 and what.startswith("words, ") else None


def _add_sizes(report: Report, readers: dict[int, _Reader]) -> None:
    """Report the size of the session page and (on PostgreSQL, from its log) its queries."""
    for effects, reader in readers.items():
        vendor, name = reader.server.installation.vendor, f"session page, {effects:,} effects"
        report.add(
            vendor, f"{name}: size", "KB", [len(reader.pages[COMPARED]()) / 1000], bar=SIZE_BAR_KB
        )
        cluster = reader.server.installation.cluster
        if cluster is not None:
            with cluster.record_statements() as read:
                for _ in range(2):
                    reader.pages[COMPARED]()
            report.add(
                vendor, f"{name}: queries", "", [_count_queries(read.values())], bar=QUERIES_BAR
            )


def _count_queries(connections: Iterable[list[str]]) -> int:
    """Return the number of queries of the cheapest request among `connections`.

    Other requests also refresh the server's caches or the sign-in's expiry, or a periodic job follows
    on their connection.
    """
    requests: list[int] = []
    for queries in connections:
        begins = [
            place
            for place, query in enumerate(queries)
            if query.startswith('SELECT "django_session"')
        ]
        requests += [end - place for place, end in pairwise([*begins, len(queries)])]
    return min(requests)
