"""The figures as one JSON file and as the generated page docs/explanation/evaluation.md. Nothing is in it that
was not run."""

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


def as_json(results: dict[str, Any]) -> str:
    """The file: readable, and the same text for the same figures."""
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def publish(results: dict[str, Any]) -> None:
    """Write both files."""
    FIGURES.write_text(as_json(results))
    PAGE.write_text(page(results))


def page(results: dict[str, Any]) -> str:
    """docs/explanation/evaluation.md."""
    about = results["about"]
    run = dict.fromkeys(part for told in results["databases"].values() for part in told)
    lines = [
        f"Measured on {about['at'][:10]} in {about.get('minutes', '?')} minutes, on "
        f"{about['processors']} processors",
        f"({about['system']}, Python {about['python']}), at commit {about['commit']}, with other "
        "programs running.",
        f"Run of tier {about['tier']}: {', '.join(['baselines', *run])}.",
    ]
    words = "\n".join(lines)
    return f"{OPENING}\n{words}\n\n{tables(results)}\n{MEANING}\n{LIMITS}\n{FAILURE_MODES}"


def tables(results: dict[str, Any]) -> str:
    """The figures as Markdown."""
    return "\n".join([*_crashes(results), *_meetings(results), *_mutants(results)])


def _crashes(results: dict[str, Any]) -> Iterator[str]:
    yield "### W1: crashes around effects\n"
    yield f"| substrate | schedules | {' | '.join(COUNTERS)} | ended with a person |"
    yield "|---|--:|" + "--:|" * (len(COUNTERS) + 1)
    for name, found in results.get("baselines", {}).items():
        yield _row(f"session {name}", found)
    for vendor, told in results["databases"].items():
        for part, words in _ROWS:
            if part in told:
                yield _row(f"Gatebook, {_NAMES[vendor]}: {words}", told[part])
        for part, words in (
            ("falls", "the server crashes"),
            ("server killed", "the server crashes, SIGKILL"),
        ):
            for name, found in told.get(part, {}).items():
                if name != "seconds":
                    yield _row(f"Gatebook, {_NAMES[vendor]}: {words}; {name}", found)
    yield ""


def _row(name: str, found: dict[str, Any]) -> str:
    values = [found["runs"], *(found[counter] for counter in COUNTERS)]
    person = f"{found['ended with a person']:,} ({100 * found['ended with a person'] / max(found['runs'], 1):.0f} %)"
    return f"| {name} | {' | '.join(f'{value:,}' for value in values)} | {person} |"


def _meetings(results: dict[str, Any]) -> Iterator[str]:
    yield "### W2: scheduler, worker and approver at once\n"
    yield "| where | what | tried | violations |"
    yield "|---|---|--:|--:|"
    for vendor, told in results["databases"].items():
        for where, what, tried, violations in _met(_NAMES[vendor], told):
            yield f"| {where} | {what} | {tried:,} | {violations:,} |"
    yield ""


def _met(place: str, told: dict[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    for name, figures in told.get("interleavings", {}).items():
        if name != "seconds":
            where = "session file" if "file" in name else place
            words = f"interleavings of {name.replace(', session file', '')}; lost updates"
            yield where, words, figures["interleavings"], figures["lost"]
    met = told.get("meetings")
    if met is not None:
        zombie, gates, herd = (
            met["lease steal with a zombie"],
            met["two approvers"],
            met["eight threads"],
        )
        words = "a lease is taken from a worker that wakes up later; any of the five counters"
        yield place, words, zombie["runs"], sum(zombie[counter] for counter in COUNTERS)
        bad = gates["not one ruling"] + gates["permission against the ruling"] + gates["used twice"]
        yield (
            place,
            "two people vote on a gate at once; not exactly one ruling, or used twice",
            gates["gates"],
            bad,
        )
        bad = herd["told twice"] + herd["told nobody"]
        yield (
            place,
            "eight threads dispatch an effect; not exactly one permission",
            herd["rounds"],
            bad,
        )
    if "orders" in told:
        orders = told["orders"]
        words = "delivery orders of four events, each sent twice; states beyond one"
        yield place, words, orders["orders"], orders["states"] - 1


def _mutants(results: dict[str, Any]) -> Iterator[str]:
    for vendor, told in results["databases"].items():
        if "mutants" not in told:
            continue
        caught = told["mutants"]["caught"]
        yield f"### Mutants, {_NAMES[vendor]}: {sum(map(bool, caught.values()))} of {len(caught)} caught\n"
        yield "| injected fault | caught by |"
        yield "|---|---|"
        for name, words in caught.items():
            yield f"| {name} | {_short(words) or '**not caught**'} |"
        yield ""


def _short(words: str) -> str:
    for longer in ("; first", " b'", ": {"):
        words = words.partition(longer)[0]
    return words


def broken(results: dict[str, Any]) -> list[str]:
    """Every bar that does not hold, a sentence each."""
    return [
        *_broken_baselines(results.get("baselines", {})),
        *_broken_databases(results["databases"]),
    ]


def _broken_baselines(told: dict[str, Any]) -> Iterator[str]:
    """The session file must fail as the paper predicts, or the rig would prove nothing."""
    if not told:
        return
    if not any(found["unlabelled ambiguities"] for found in told.values()):
        yield "no session file stood for two fates at once"
    if not told["blob, replay"]["duplicates"]:
        yield "the session file that replays made no duplicate"
    if not told["blob, skip"]["lost"]:
        yield "the session file that skips lost nothing"
    asks = told["blob, ask"]
    if asks["ended with a person"] * 2 <= asks["runs"]:
        yield "the session file that asks could decide half of its cases"


def _broken_databases(databases: dict[str, Any]) -> Iterator[str]:
    for vendor, told in databases.items():
        found = [(part, told[part]) for part, _ in _ROWS if part in told]
        for part in ("falls", "server killed"):
            found += [
                (f"{part}, {name}", one)
                for name, one in told.get(part, {}).items()
                if name != "seconds"
            ]
        met = told.get("meetings", {})
        found += [(name, one) for name, one in met.items() if name == "lease steal with a zombie"]
        for name, one in found:
            counted = {counter: one[counter] for counter in COUNTERS if one[counter]}
            if counted or one["UNDECIDABLE of a tool that can be known"]:
                yield f"{vendor}, {name}: {counted or 'UNDECIDABLE of a tool that can be known'}"
        if met:
            gates, herd = met["two approvers"], met["eight threads"]
            if (
                gates["not one ruling"]
                + gates["permission against the ruling"]
                + gates["used twice"]
            ):
                yield f"{vendor}, two approvers: {gates}"
            if herd["told twice"] + herd["told nobody"]:
                yield f"{vendor}, eight threads: {herd}"
        order = told.get("interleavings", {})
        if order and (order["read/write"]["lost"] or order["begin/update/commit"]["lost"]):
            yield f"{vendor}: updates were lost"
        if order and order["read/write, session file"]["lost"] < 80:
            yield "the session file lost updates in fewer than 80 of 90"
        if "orders" in told and told["orders"]["states"] != 1:
            yield f"{vendor}: {told['orders']['states']} states out of one set of events"
        mutants = told.get("mutants", {"caught": {}, "without a fault": []})
        yield from (
            f"{vendor}: not caught: {name}"
            for name, words in mutants["caught"].items()
            if not words
        )
        yield from (
            f"{vendor}: caught where there is no fault: {words}"
            for words in mutants["without a fault"]
        )
