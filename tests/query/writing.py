"""Generate random queries, each with a plain-Python predicate that means the same.

Written from docs/reference/search.md and not from the code under test; both share only the
language.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.query.dataset import NOW_US, REFS, START_US, TOOLS, US

Row = dict[str, Any]
Made = tuple[str, Callable[[Row], bool]]
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


def _is_fenced(row: Row) -> bool:
    return bool(row["kind"] == "integrity.fenced" and row["lane"] == "system")


def query(random: Random, entity: str) -> Made:
    """Return a complete query of `entity`."""
    text, holds = _either(random, entity, 0)
    return (f"{entity} {text}" if entity != "effect" or random.random() < 0.5 else text), holds


def _either(random: Random, entity: str, depth: int) -> Made:
    parts = [_both(random, entity, depth) for _ in range(random.choice([1, 1, 2]))]
    return " OR ".join(text for text, _ in parts), lambda row: any(holds(row) for _, holds in parts)


def _both(random: Random, entity: str, depth: int) -> Made:
    parts = [_part(random, entity, depth) for _ in range(random.choice([1, 2, 2, 3]))]
    join = random.choice([" ", " AND "])
    return join.join(text for text, _ in parts), lambda row: all(holds(row) for _, holds in parts)


def _part(random: Random, entity: str, depth: int) -> Made:
    chance = random.random()
    if chance < 0.2 and depth < 3:
        text, holds = _either(random, entity, depth + 1)
        return f"({text})", holds
    if chance < 0.35 and depth < 3:
        text, holds = _part(random, entity, depth + 1)
        return random.choice(["-", "NOT "]) + text, lambda row: not holds(row)
    if chance < 0.47 and depth < 2 and entity in _CHILDREN:
        return _scope(random, entity, depth)
    return _term(random, entity)


_CHILDREN: Final[dict[str, dict[str, str]]] = {
    "session": {"effect": "effects", "gate": "gates", "event": "events"},
    "effect": {"gate": "gates", "event": "events", "session": "session"},
    "gate": {"effect": "effect", "session": "session"},
    "event": {"effect": "effect"},
}


def _scope(random: Random, entity: str, depth: int) -> Made:
    child, place = random.choice(list(_CHILDREN[entity].items()))
    text, holds = _either(random, child, depth + 2)
    quantifier = random.choice(["any", "all", "none", "count"])

    def met(row: Row) -> list[bool]:
        others = row[place]
        return [holds(other) for other in (others if isinstance(others, list) else [others])]

    if quantifier == "count":
        sign, number = random.choice(list(_SIGNS)), random.randrange(4)
        return (
            f"count({child}: {text}) {sign} {number}",
            lambda row: _SIGNS[sign](sum(met(row)), number),
        )
    decide: dict[str, Callable[[list[bool]], bool]] = {
        "any": any,
        "all": all,
        "none": lambda matches: not any(matches),
    }
    return f"{quantifier}({child}: {text})", lambda row: decide[quantifier](met(row))


def _term(random: Random, entity: str) -> Made:
    return random.choice(_TERMS[entity])(random)


# Terms.
# -------------------------------------------------------------------------------------------------------------


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(name: str, column: str, values: tuple[str, ...]) -> Callable[[Random], Made]:
    real = [value for value in values if value]

    def make(random: Random) -> Made:
        chance = random.random()
        if chance < 0.2:
            return f"has:{name}", lambda row: row[column] not in ("", None)
        if chance < 0.45:
            start = random.choice(real)[: random.randrange(1, 4)]
            return f"{name}:{quoted(start)}*", lambda row: (row[column] or "").startswith(start)
        if chance < 0.7:
            some = random.sample(real, min(2, len(real)))
            return f"{name}:[{', '.join(map(quoted, some))}]", lambda row: row[column] in some
        value = random.choice([*real, "nowhere"])
        return f"{name}:{random.choice(['', '='])}{quoted(value)}", lambda row: row[column] == value

    return make


def _choice(name: str, words: dict[str, Callable[[Row], bool]]) -> Callable[[Random], Made]:
    def make(random: Random) -> Made:
        some = random.sample(list(words), random.choice([1, 1, 2]))
        text = some[0] if len(some) == 1 else f"[{','.join(some)}]"
        return f"{name}:{text}", lambda row: any(words[word](row) for word in some)

    return make


def _equal(column: str, *values: str) -> dict[str, Callable[[Row], bool]]:
    return {value: (lambda row, value=value: row[column] == value) for value in values}  # type: ignore[misc]


def _number(name: str, column: str, most: int) -> Callable[[Random], Made]:
    def make(random: Random) -> Made:
        number, chance = random.randrange(most), random.random()
        if chance < 0.3:
            high = number + random.randrange(3)
            return (
                f"{name}:{number}..{high}",
                lambda row: row[column] is not None and number <= row[column] <= high,
            )
        if chance < 0.5:
            return f"{name}:{number}", lambda row: row[column] == number
        sign = random.choice(list(_SIGNS))
        return (
            f"{name}:{sign}{number}",
            lambda row: row[column] is not None and _SIGNS[sign](row[column], number),
        )

    return make


def _counts(row: Row) -> bool:
    """Return whether an exemption is in force."""
    return (
        row["in_force_at_us"] is not None
        and row["revoked_at_us"] is None
        and row["ends_at_us"] > NOW_US
    )


def _length(name: str, begun: str, ended: str) -> Callable[[Random], Made]:
    def make(random: Random) -> Made:
        seconds, sign = random.randrange(5), random.choice(list(_SIGNS))

        def holds(row: Row) -> bool:
            if row[begun] is None or row[ended] is None:
                return False
            return _SIGNS[sign](row[ended] - row[begun], seconds * US)

        text = random.choice([f"{seconds}s", f"{seconds * 1000}ms"])
        return f"{name}:{sign}{text}", holds

    return make


def _time(name: str, column: str) -> Callable[[Random], Made]:
    def make(random: Random) -> Made:
        minutes, chance = random.randrange(760), random.random()
        at = START_US + minutes * 60 * US
        begun = at - at % (60 * US)  # a time to the minute means all of that minute
        ended = begun + 60 * US
        text = _written(begun)
        if chance < 0.15:
            age = NOW_US - minutes * 60 * US
            return f"{name}:{minutes}m", lambda row: row[column] is not None and row[column] >= age
        if chance < 0.3:
            return (
                f"{name}:{text}",
                lambda row: row[column] is not None and begun <= row[column] < ended,
            )
        if chance < 0.5:
            last = ended + 120 * 60 * US
            text = f"{text}..{_written(last - 60 * US)}"
            return (
                f"{name}:{text}",
                lambda row: row[column] is not None and begun <= row[column] < last,
            )
        edges: dict[str, Callable[[int], bool]] = {
            ">": lambda us: us >= ended,
            ">=": lambda us: us >= begun,
            "<": lambda us: us < begun,
            "<=": lambda us: us < ended,
        }
        sign = random.choice(list(edges))
        return (
            f"{name}:{sign}{text}",
            lambda row: row[column] is not None and edges[sign](row[column]),
        )

    return make


def _bound(column: str) -> Callable[[Random], Made]:
    def make(random: Random) -> Made:
        at = START_US + random.randrange(760) * 60 * US
        at -= at % (60 * US)
        if random.random() < 0.5:
            return f"since:{_written(at)}", lambda row: row[column] >= at
        return f"until:{_written(at)}", lambda row: row[column] < at

    return make


def _written(us: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(us / US, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _fields(
    name: str, column: str, other: str, other_column: str, signs: tuple[str, ...]
) -> Callable[[Random], Made]:
    def make(random: Random) -> Made:
        sign = random.choice(signs)

        def holds(row: Row) -> bool:
            a, b = row[column], row[other_column]
            if a in ("", None) or b in ("", None):
                return False
            return a != b if sign == "!" else a == b if not sign else _SIGNS[sign](a, b)

        return f"{name}:{sign}@{other}", holds

    return make


def _always(text: str, holds: Callable[[Row], bool]) -> Callable[[Random], Made]:
    return lambda _random: (text, holds)


def shown(row: Row) -> str:
    """Return the state of an effect as pages show it, by its name in queries."""
    if row["state"] == "planned" and row["permission"] == "pending":
        return "awaiting"
    if (
        row["state"] == "dispatched"
        and row["deadline_us"] is not None
        and row["deadline_us"] < NOW_US
    ):
        return "unknown"
    if row["state"] in ("acknowledged", "failed") and row["outcome"] == "unknown":
        return "unknown"
    return str(row["state"])


def _shown(*words: str) -> dict[str, Callable[[Row], bool]]:
    return {word: (lambda row, word=word: shown(row) == word) for word in words}  # type: ignore[misc]


def _status(row: Row) -> str:
    return (
        "no_end_told" if row["mode"] == "reported" and row["status"] == "running" else row["status"]
    )


_STATES: Final = (
    *(
        "planned",
        "awaiting",
        "dispatched",
        "acknowledged",
        "failed",
        "unknown",
        "compensated",
        "superseded",
    ),
)
_TERMS: Final[dict[str, list[Callable[[Random], Made]]]] = {
    "effect": [
        _choice("state", _shown(*_STATES)),
        _choice("outcome", _equal("outcome", "ok", "error", "unknown")),
        _text("tool", "tool", TOOLS),
        _text("ref", "ref", REFS),
        _text("env", "environment", ("prod", "main")),
        _text("reference", "external_reference", ("https://forge.example/pull/17", "a..b")),
        _text("agent", "agent", ("robot0", "robot1", "robot2")),
        _text("repo", "repository", ("web0", "web1")),
        _text("intent", "intent_digest", ("v1:1", "v1:2")),
        _choice("ref_class", _equal("ref_class", "production", "protected", "other")),
        _choice("permission", _equal("permission", "none", "pending", "used", "bypassed")),
        _number("attempts", "attempt_count", 6),
        _length("took", "dispatched_at_us", "settled_at_us"),
        _time("at", "received_us"),
        _time("planned_at", "planned_at_us"),
        _bound("received_us"),
        _fields("ref", "ref", "environment", "environment", ("", "!")),
        _fields("planned_at", "planned_at_us", "settled_at", "settled_at_us", ("", "!", *_SIGNS)),
        _always("is:violating", lambda row: row["violates"]),
        _always("is:unknown", lambda row: shown(row) == "unknown"),
        _always("is:waiting", lambda row: shown(row) == "awaiting"),
        _always("is:fenced", lambda row: any(_is_fenced(event) for event in row["events"])),
        _always("session:s-7", lambda row: row["session"]["key"] == "s-7"),
        _always("session:[s-1,s-2]", lambda row: row["session"]["key"] in ("s-1", "s-2")),
    ],
    "session": [
        _choice(
            "status",
            {
                word: (lambda row, word=word: _status(row) == word)  # type: ignore[misc]
                for word in ("running", "waiting", "completed", "failed", "no_end_told")
            },
        ),
        _choice("mode", _equal("mode", "leased", "reported", "one_shot")),
        _text("agent", "agent", ("robot0", "robot1")),
        _text("owner", "owner", ("carol0", "carol2")),
        _text("title", "title", ("Deploy the shop", "deploy")),
        _number("resumes", "resumes", 4),
        _number("effects", "effect_count", 4),
        _length("took", "started_at_us", "ended_at_us"),
        _time("started_at", "started_at_us"),
        _bound("created_at_us"),
        _text("failing_tool", "", ())
        if False
        else _always(
            "failing_tool:git.push",
            lambda row: any(
                effect["state"] == "failed" and effect["tool"] == "git.push"
                for effect in row["effects"]
            ),
        ),
        _always("is:ended", lambda row: row["status"] in ("completed", "failed", "cancelled")),
        _always(
            "is:unknown", lambda row: any(shown(effect) == "unknown" for effect in row["effects"])
        ),
        _always("is:violating", lambda row: any(effect["violates"] for effect in row["effects"])),
    ],
    "gate": [
        _choice("risk", _equal("risk", "low", "medium")),
        _text("tool", "tool", TOOLS),
        _text("requester", "requester", ("carol0", "carol1")),
        _text("repo", "repository_name", ("web0",)),
        _fields("requester", "requester", "agent_owner", "agent_owner", ("", "!")),
        _fields("at", "requested_at_us", "decide_by", "decide_by_us", tuple(_SIGNS)),
        _time("decide_by", "decide_by_us"),
        _bound("requested_at_us"),
        _always("is:open", lambda row: row["status"] in ("pending", "approved")),
        _always("session:s-3", lambda row: row["session"]["key"] == "s-3"),
    ],
    "exemption": [
        _text("tool", "tool", ("*", "git.*")),
        _text("granter", "granter", ("carol0", "carol1")),
        _number("uses", "uses", 3),
        _time("last_use", "used_at_us"),
        _fields("last_use", "used_at_us", "expires", "ends_at_us", tuple(_SIGNS)),
        _always("is:live", lambda row: _counts(row)),
        _always("is:ended", lambda row: not _counts(row)),
    ],
    "event": [
        _text("kind", "kind", ("effect.planned", "integrity.fenced", "effect.probed")),
        _text("actor", "actor", ("p_ann", "gatebook")),
        _choice("lane", _equal("lane", "command", "evidence", "system")),
        _time("at", "received_us"),
        _bound("received_us"),
        _number("position", "position", 900),
        _always("is:fenced", _is_fenced),
        _always("effect:e_999999", lambda _row: False),
    ],
}
