"""Settings of servers that tests start: those of the product with a fast password hasher."""

from config.docs_site import site_files
from config.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# The documentation that a test builds for its server, and never that of the clone.
site_files.DOCS_FOLDER = VAR_DIR / "docs"  # type: ignore[misc]  # noqa: F405
