#!/usr/bin/env python
"""Every operator's command of Gatebook: `python manage.py help`."""

import gc
import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django
    from django.core.management import execute_from_command_line

    from db.operator_errors import run_with_sentences

    def run() -> None:
        gc.disable()  # until all is loaded, which stays: a tenth of the time of a start
        django.setup()
        gc.freeze()
        gc.enable()
        from config import installation

        installation.refuse_command(sys.argv)
        execute_from_command_line(sys.argv)

    run_with_sentences(run)


if __name__ == "__main__":
    main()
