"""Every kind that a batch may tell of, with its shape."""

from typing import Final

import msgspec

from ingest import shapes, shapes_verdicts, shapes_work

SHAPES: Final[dict[str, type[msgspec.Struct]]] = {
    **shapes.REPORTED,
    **shapes_verdicts.REPORTED,
    **shapes_work.REPORTED,
}
