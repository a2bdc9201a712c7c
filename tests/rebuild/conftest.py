"""The project, people and agent of the tests of rebuild."""

from tests.approvals.conftest import inbox as inbox
from tests.approvals.conftest import quiet as quiet
