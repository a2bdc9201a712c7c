"""Four lifecycle events, each sent twice, in every order of delivery: 8! / 2^4 = 2,520, and one
state at the end."""

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from evaluation.crashtest.gatebook import Api, Unexpected

EVENTS: Final = ("planned", "dispatched", "failed", "acknowledged")
ITEMS: Final = 840  # of a batch
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "planned": {"tool": "rig.push", "arguments": {"ref": "main"}},
    "dispatched": {"attempt": 1, "process": "p"},
    "failed": {"attempt": 1, "reason": "timeout"},
    "acknowledged": {"attempt": 1, "outcome": "ok", "external_reference": "r1"},
}
_OWN: Final = frozenset(
    {"id", "handle", "effect_key"}
)  # what differs from effect to effect by nature


def every() -> list[tuple[int, ...]]:
    """Every order of 0 0 1 1 2 2 3 3."""
    return list(_orders(dict.fromkeys(range(len(EVENTS)), 2)))


def _orders(left: dict[int, int]) -> Iterator[tuple[int, ...]]:
    if not any(left.values()):
        yield ()
    for number, times in left.items():
        if times:
            for rest in _orders({**left, number: times - 1}):
                yield (number, *rest)


def deliver(api: Api, orders: Sequence[Sequence[int]]) -> Counter[str]:
    """Send each order to an effect of its own, every event in a request of its own; the states that
    came of them.

    The n-th events of all effects travel in one batch: eight waves, each its own transactions.
    """
    name = f"orders-{secrets.token_hex(4)}"
    for wave in range(len(orders[0])):
        items = [_item(name, number, order[wave]) for number, order in enumerate(orders)]
        for start in range(0, len(items), ITEMS):
            status, said = api.post("/events", items[start : start + ITEMS], "")
            if status != 200:
                raise Unexpected(f"a batch was answered {status}: {json.dumps(said)[:600]}")
    return _states(api, name)


def _item(name: str, number: int, event: int) -> dict[str, Any]:
    kind = EVENTS[event]
    return {
        "id": f"{name}-{number}-{event}",
        "kind": f"effect.{kind}",
        "session": name,
        "effect_key": f"e{number}",
        "producer_seq": event,
        **_FIELDS[kind],
    }


def _states(api: Api, name: str) -> Counter[str]:
    """Every effect of the session as the API tells it, but for its names; how many there are of
    each."""
    found: Counter[str] = Counter()
    after = ""
    while True:
        status, said = api.get(f"/effects?session={name}&limit=200{after}")
        if status != 200:
            raise Unexpected(f"a list was answered {status}: {said}")
        for one in said["items"]:
            found[json.dumps({name: one[name] for name in sorted(one) if name not in _OWN})] += 1
        if said["next"] is None:
            return found
        after = f"&after={said['next']}"
