"""Entry point of `python -m gatebook_client`, the same as the command `gatebook`."""

from gatebook_client.cli import main

raise SystemExit(main())
