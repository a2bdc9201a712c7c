"""`python -m gatebook_client` is the command line `gatebook`."""

from gatebook_client.cli import main

raise SystemExit(main())
