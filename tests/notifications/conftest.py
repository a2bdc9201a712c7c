"""Fixtures of the tests of notifications."""

from tests.approvals.conftest import gate as gate
from tests.approvals.conftest import inbox as inbox
from tests.approvals.conftest import quiet as quiet
from tests.approvals.conftest import rita as rita
