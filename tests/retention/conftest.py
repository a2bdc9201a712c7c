"""The office of the tests of erasure, with journal entries of past months."""

from tests.bundles.conftest import origin as origin
from tests.erasure.conftest import committed as committed
from tests.erasure.conftest import office as office
from tests.erasure.conftest import own_folder as own_folder
from tests.pages.conftest import agent as agent
from tests.pages.conftest import sample as sample
