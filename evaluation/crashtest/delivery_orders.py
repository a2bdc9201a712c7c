"""Four events of an effect, each sent twice, in all 8! / 2^4 = 2,520 orders of delivery."""

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
_OWN: Final = frozenset({"id", "handle", "effect_key"})  # fields that differ between equal effects


def list_orders() -> list[tuple[int, ...]]:
    """Return every order of 0 0 1 1 2 2 3 3."""
    return list(_permute(dict.fromkeys(range(len(EVENTS)), 2)))


def _permute(remaining: dict[int, int]) -> Iterator[tuple[int, ...]]:
    if not any(remaining.values()):
        yield ()
    for number, times in remaining.items():
        if times:
            for rest in _permute({**remaining, number: times - 1}):
                yield (number, *rest)


def deliver_orders(api: Api, orders: Sequence[Sequence[int]]) -> Counter[str]:
    """Send each order to its own effect; return the resulting states with their counts.

    The n-th events of all effects are sent in one batch: eight waves, each with its own transactions.
    """
    name = f"orders-{secrets.token_hex(4)}"
    for wave in range(len(orders[0])):
        items = [_make_item(name, number, order[wave]) for number, order in enumerate(orders)]
        for start in range(0, len(items), ITEMS):
            status, reply = api.post("/events", items[start : start + ITEMS], "")
            if status != 200:
                raise Unexpected(f"a batch was answered {status}: {json.dumps(reply)[:600]}")
    return _count_states(api, name)


def _make_item(name: str, number: int, event: int) -> dict[str, Any]:
    kind = EVENTS[event]
    return {
        "id": f"{name}-{number}-{event}",
        "kind": f"effect.{kind}",
        "session": name,
        "effect_key": f"e{number}",
        "producer_seq": event,
        **_FIELDS[kind],
    }


def _count_states(api: Api, name: str) -> Counter[str]:
    """Count the distinct effects of the session, compared without their names."""
    states: Counter[str] = Counter()
    after = ""
    while True:
        status, page = api.get(f"/effects?session={name}&limit=200{after}")
        if status != 200:
            raise Unexpected(f"a list was answered {status}: {page}")
        for effect in page["items"]:
            states[
                json.dumps({name: effect[name] for name in sorted(effect) if name not in _OWN})
            ] += 1
        if page["next"] is None:
            return states
        after = f"&after={page['next']}"
