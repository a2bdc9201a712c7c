"""Read-only pages: parse the query string, call queries, render a template."""
