"""Schema of each kind of reported fact."""

from typing import Final

import msgspec

from ingest import shapes, shapes_verdicts, shapes_work

SHAPES: Final[dict[str, type[msgspec.Struct]]] = {
    **shapes.REPORTED,
    **shapes_verdicts.REPORTED,
    **shapes_work.REPORTED,
}
