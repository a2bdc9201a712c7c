"""Textures of the fills of charts, so that states differ in more than colour.

A texture is a pattern in the colour of the page (templates/_textures.html) that lies on the fill of
a state. Most rows have the states without one, so that charts stay calm.
"""

from collections.abc import Mapping
from typing import Final

# By entity and state. "" is a plain fill. The states of one entity have different textures.
STATE_TEXTURES: Final[Mapping[str, Mapping[str, str]]] = {
    "effect": {
        "acknowledged": "",
        "planned": "spots",
        "awaiting": "rows",
        "dispatched": "columns",
        "failed": "cross",
        "unknown": "hatch",
        "compensated": "wide-rows",
        "superseded": "wide-columns",
        "denied": "grid",
        "violating": "slants",
    },
    "session": {
        "completed": "",
        "done": "",
        "running": "columns",
        "end not reported": "grid",
        "no_end_told": "grid",
        "worker gone": "hatch",
        "no worker": "slants",
        "not started": "spots",
        "pending": "spots",
        "waiting": "rows",
        "blocked": "rows",
        "suspended": "dots",
        "failed": "cross",
        "cancelled": "wide-columns",
    },
    "gate": {
        "used": "",
        "approved": "dots",
        "pending": "rows",
        "denied": "cross",
        "denied_session": "slants",
        "changes_requested": "wide-rows",
        "expired": "spots",
        "expired_unused": "grid",
        "revoked": "hatch",
        "cancelled": "wide-columns",
    },
}
