"""A Gatebook in memory for your own tests: `FakeLedger`.

ledger = FakeLedger()
with ledger.session("nightly") as s:
    s.perform("mail.send", {"to": "ada"}, send)
assert ledger.states() == {"mail.send": "acknowledged"}
"""

from gatebook_client.testing.fake import FakeLedger, Process
from gatebook_client.testing.state import Crash

__all__ = ["Crash", "FakeLedger", "Process"]
