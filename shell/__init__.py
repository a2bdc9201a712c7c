"""Shell commands: their parsed form and the tools that they call. Knows no database."""
