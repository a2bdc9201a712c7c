"""What the tests of recovery share: agents at the doors, as the tests of the doors have them."""

from tests.approvals.conftest import desk as desk
from tests.approvals.conftest import quiet as quiet
from tests.ingest.conftest import agent as agent
from tests.ingest.conftest import application as application
from tests.ingest.conftest import call as call
from tests.ingest.conftest import importer as importer
from tests.ingest.conftest import issue as issue
from tests.ingest.conftest import stranger as stranger
