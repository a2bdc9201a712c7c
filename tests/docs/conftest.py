"""The documentation site, which is built once."""

from pathlib import Path
from typing import Final

import pytest
from django.conf import settings

from config.docs_site import site_build

REMOVED_FILE: Final = "removed.html.gz"  # an earlier build has it


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a dead link fails. No test changes it."""
    folder = tmp_path_factory.mktemp("docs")
    earlier = folder / settings.GATEBOOK_VERSION / REMOVED_FILE
    earlier.parent.mkdir()
    earlier.touch()
    return site_build.build_site(folder)
