"""The settings of servers that tests start: the installation's, but passwords of tests are hashed
in no time."""

from config.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
