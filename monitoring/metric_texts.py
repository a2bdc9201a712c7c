"""The metrics of /metrics with their help texts. The documentation site shows them as a page."""

from typing import Final

# By the name of the metric. Each is a gauge.
METRICS: Final = {
    "gatebook_seal_lag_seconds": "Age of the oldest entry that is not sealed.",
    "gatebook_seal_late": "Whether the seal is later than an operator should accept.",
    "gatebook_sealed_entries": "Size of the tree.",
    "gatebook_job_in_trouble": (
        "Whether a job is late or its last run failed. Jobs that never ran are left out."
    ),
}
