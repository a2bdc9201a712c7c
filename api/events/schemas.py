"""Schema of each kind of reported fact."""

from typing import Final

import msgspec

from api.schemas import core, working_state

EVENT_SCHEMAS: Final[dict[str, type[msgspec.Struct]]] = {
    **core.REPORTED,
    **working_state.REPORTED,
}
