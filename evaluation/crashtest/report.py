"""The figures as one JSON file and as the generated page docs/explanation/evaluation.md."""

import json
from collections.abc import Iterator
from typing import Any, Final

from evaluation.bench.installation import ROOT
from evaluation.crashtest.checker import COUNTERS
from evaluation.crashtest.report_text import FAILURE_MODES, LIMITS, MEANING, OPENING

PAGE: Final = ROOT / "docs" / "explanation" / "evaluation.md"
FIGURES: Final = ROOT / "docs" / "evaluation.json"
_ROWS: Final = (
    ("crashes", "one death of the agent"),
    ("killed", "one death of the agent, SIGKILL"),
    ("client", "one death of a program with the agents' client, SIGKILL"),
    ("deep", "two deaths of the agent"),
    ("killed deep", "two deaths of the agent, SIGKILL, 300 sampled"),
    ("tricked twice", "one death, two chosen requests"),
)
_NAMES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def to_json(results: dict[str, Any]) -> str:
    """Return the JSON file; equal figures give equal text."""
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def publish(results: dict[str, Any]) -> None:
    """Write both files."""
    FIGURES.write_text(to_json(results))
    PAGE.write_text(render_page(results))


def render_page(results: dict[str, Any]) -> str:
    """Return the text of docs/explanation/evaluation.md."""
    about = results["about"]
    lines = [
        f"Measured on {about['at'][:10]} in {about.get('minutes', '?')} minutes, on "
        f"{about['processors']} processors",
        f"({about['system']}, Python {about['python']}), at commit {about['commit']}, with other "
        "programs running.",
        f"Tier {about['tier']}; the tables show every part that ran.",
    ]
    text = "\n".join(lines)
    return f"{OPENING}\n{text}\n\n{render_tables(results)}\n{MEANING}\n{LIMITS}\n{FAILURE_MODES}"


def render_tables(results: dict[str, Any]) -> str:
    """Return the figures as Markdown tables."""
    return "\n".join(
        [*_list_crash_rows(results), *_list_race_rows(results), *_list_mutant_rows(results)]
    )


def _list_crash_rows(results: dict[str, Any]) -> Iterator[str]:
    yield "## W1: crashes around effects\n"
    yield f"| state stored in | runs | {' | '.join(COUNTERS)} | ended with a person |"
    yield "|---|--:|" + "--:|" * (len(COUNTERS) + 1)
    for name, counts in results.get("baselines", {}).items():
        yield _format_row(_name_session_file(name), counts)
    for vendor, figures in results["databases"].items():
        for part, text in _ROWS:
            if part in figures:
                yield _format_row(f"Gatebook, {_NAMES[vendor]}: {text}", figures[part])
        for part, text in (
            ("server crashes", "the server crashes"),
            ("server killed", "the server crashes, SIGKILL"),
        ):
            for name, counts in figures.get(part, {}).items():
                if name != "seconds":
                    yield _format_row(f"Gatebook, {_NAMES[vendor]}: {text}; {name}", counts)
    yield ""


def _format_row(name: str, counts: dict[str, Any]) -> str:
    values = [counts["runs"], *(counts[counter] for counter in COUNTERS)]
    person = f"{counts['ended with a person']:,} ({100 * counts['ended with a person'] / max(counts['runs'], 1):.0f} %)"
    return f"| {name} | {' | '.join(f'{value:,}' for value in values)} | {person} |"


def _list_race_rows(results: dict[str, Any]) -> Iterator[str]:
    yield "## W2: scheduler, worker and approver at once\n"
    yield "| where | what | tried | violations |"
    yield "|---|---|--:|--:|"
    for vendor, figures in results["databases"].items():
        for where, what, tried, violations in _list_races(_NAMES[vendor], figures):
            yield f"| {where} | {what} | {tried:,} | {violations:,} |"
    yield ""


def _list_races(place: str, results: dict[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    for name, figures in results.get("interleavings", {}).items():
        if name != "seconds":
            where = "session file" if "file" in name else place
            text = f"interleavings of {name.replace(', session file', '')}; lost updates"
            yield where, text, figures["interleavings"], figures["lost"]
    races = results.get("races")
    if races is not None:
        zombie, gates, herd = (
            races["lease steal with a zombie"],
            races["two approvers"],
            races["eight threads"],
        )
        text = "a lease is taken from a worker that wakes up later; any of the five counters"
        yield place, text, zombie["runs"], sum(zombie[counter] for counter in COUNTERS)
        bad = (
            gates["not exactly one ruling"]
            + gates["permission against the ruling"]
            + gates["used twice"]
        )
        yield (
            place,
            "two people vote on a gate at once; not exactly one ruling, or used twice",
            gates["gates"],
            bad,
        )
        bad = herd["permitted twice"] + herd["never permitted"]
        yield (
            place,
            "eight threads dispatch an effect; not exactly one permission",
            herd["rounds"],
            bad,
        )
    if "orders" in results:
        orders = results["orders"]
        text = "delivery orders of four events, each sent twice; states beyond one"
        yield place, text, orders["orders"], orders["states"] - 1


def _list_mutant_rows(results: dict[str, Any]) -> Iterator[str]:
    for vendor, figures in results["databases"].items():
        if "mutants" not in figures:
            continue
        caught = figures["mutants"]["caught"]
        yield f"## Mutants, {_NAMES[vendor]}: {sum(map(bool, caught.values()))} of {len(caught)} caught\n"
        yield "| injected fault | caught by |"
        yield "|---|---|"
        for name, text in caught.items():
            yield f"| {_name_session_file(name)} | {_shorten(text) or '**not caught**'} |"
        yield ""


def _name_session_file(name: str) -> str:
    """Return the name of a baseline or mutant with the term of the page: the blob is the file."""
    return name.replace("blob", "session file")


def _shorten(text: str) -> str:
    for longer in ("; first", " b'", ": {"):
        text = text.partition(longer)[0]
    return text


def list_violations(results: dict[str, Any]) -> list[str]:
    """Return one sentence for each requirement that is not met."""
    return [
        *_check_baselines(results.get("baselines", {})),
        *_check_databases(results["databases"]),
    ]


def _check_baselines(baselines: dict[str, Any]) -> Iterator[str]:
    """Check that the session file fails as the paper predicts; else the rig proves nothing."""
    if not baselines:
        return
    if not any(counts["unlabelled ambiguities"] for counts in baselines.values()):
        yield "no session file was ambiguous about an outcome"
    if not baselines["blob, replay"]["duplicates"]:
        yield "the session file with policy replay duplicated nothing"
    if not baselines["blob, skip"]["lost"]:
        yield "the session file with policy skip lost nothing"
    asks = baselines["blob, ask"]
    if asks["ended with a person"] * 2 <= asks["runs"]:
        yield "the session file with policy ask decided half of its cases or more"


def _check_databases(databases: dict[str, Any]) -> Iterator[str]:
    for vendor, figures in databases.items():
        rows = [(part, figures[part]) for part, _ in _ROWS if part in figures]
        for part in ("server crashes", "server killed"):
            rows += [
                (f"{part}, {name}", counts)
                for name, counts in figures.get(part, {}).items()
                if name != "seconds"
            ]
        races = figures.get("races", {})
        rows += [
            (name, counts) for name, counts in races.items() if name == "lease steal with a zombie"
        ]
        for name, counts in rows:
            counted = {counter: counts[counter] for counter in COUNTERS if counts[counter]}
            if counted or counts["UNDECIDABLE for a decidable tool"]:
                yield f"{vendor}, {name}: {counted or 'UNDECIDABLE for a decidable tool'}"
        if races:
            gates, herd = races["two approvers"], races["eight threads"]
            if (
                gates["not exactly one ruling"]
                + gates["permission against the ruling"]
                + gates["used twice"]
            ):
                yield f"{vendor}, two approvers: {gates}"
            if herd["permitted twice"] + herd["never permitted"]:
                yield f"{vendor}, eight threads: {herd}"
        order = figures.get("interleavings", {})
        if order and (order["read/write"]["lost"] or order["begin/update/commit"]["lost"]):
            yield f"{vendor}: updates were lost"
        if order and order["read/write, session file"]["lost"] < 80:
            yield "the session file lost updates in fewer than 80 of 90"
        if "orders" in figures and figures["orders"]["states"] != 1:
            yield f"{vendor}: {figures['orders']['states']} states from one set of events"
        mutants = figures.get("mutants", {"caught": {}, "without a fault": []})
        yield from (
            f"{vendor}: not caught: {name}" for name, text in mutants["caught"].items() if not text
        )
        yield from (
            f"{vendor}: caught where there is no fault: {text}"
            for text in mutants["without a fault"]
        )
