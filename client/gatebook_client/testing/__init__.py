"""A Gatebook in memory for your own tests: `FakeGatebook`.

server = FakeGatebook()
with server.session("nightly") as s:
    s.perform("mail.send", {"to": "ada"}, send)
assert server.states() == {"mail.send": "acknowledged"}
"""

from gatebook_client.testing.fake import FakeGatebook, Process
from gatebook_client.testing.models import Crash

__all__ = ["Crash", "FakeGatebook", "Process"]
