"""Fixtures of the tests of notifications."""

from tests.approvals.conftest import desk as desk
from tests.approvals.conftest import gate as gate
from tests.approvals.conftest import quiet as quiet
from tests.approvals.conftest import rita as rita
