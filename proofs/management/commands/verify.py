"""`manage.py verify`: run the stand-alone verifier on this installation's database.

The verifier runs as a program of its own, so that what it proves depends on nothing of Gatebook.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand
from django.db import connection

from proofs.anchors.anchor_settings import load_anchor_settings
from proofs.verifier import gatebook_verify

_VALUES: Final = ("jobs", "resume", "max_lag")
_LISTS: Final = ("key", "head", "anchor")
_FLAGS: Final = ("complete", "json", "no_signatures")


class Command(BaseCommand):
    """Check every sealed entry, body, tile and tree head."""

    help = (
        "Checks every sealed entry, body, tile and tree head of the database. --head and --anchor"
        " compare it with tree heads kept elsewhere; without --anchor, with the installation's own"
        " anchor files. Exit codes: 0 integrity holds, 1 broken, 2"
        " nothing proved, 3 a producer's gaps (--complete), 4 sealing is behind."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of the verifier's mode `database`."""
        gatebook_verify.add_database_options(parser)

    def handle(self, **options: Any) -> None:
        """Run the verifier, and exit with its code."""
        command = [sys.executable, str(Path(gatebook_verify.__file__)), "database"]
        for name in _VALUES:
            if options[name] is not None:
                command += [f"--{name.replace('_', '-')}", str(options[name])]
        for name in _LISTS:
            for value in options[name]:
                command += [f"--{name}", value]
        for path in list_anchor_files() if not options["anchor"] else []:
            command += ["--anchor", str(path)]
        command += [f"--{name.replace('_', '-')}" for name in _FLAGS if options[name]]
        environment = {**os.environ, "DATABASE_URL": describe_database()}
        connection.close()
        # Not as an argument: lists of processes show those, and the address has the password.
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)


def list_anchor_files() -> list[Path]:
    """Return the anchor files of this installation that hold tree heads."""
    targets = load_anchor_settings().targets
    files = [Path(target.address) for target in targets if target.kind == "file"]
    return [path for path in files if path.is_file() and path.stat().st_size]


def describe_database() -> str:
    """Return the address of the database as the verifier takes it."""
    if connection.vendor == "sqlite":
        return str(connection.settings_dict["NAME"])
    from psycopg.conninfo import make_conninfo

    given = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port", "sslmode", "options")
    return make_conninfo(**{name: given[name] for name in names if given.get(name) is not None})
