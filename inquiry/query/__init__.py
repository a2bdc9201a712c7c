"""The query language: one string serves the URL, the API, saved questions, alerts and the command line.

`syntax` reads the text (with `characters`, `conditions` and `stages`) into a `tree`, `entities` is the registry of all
that can be asked, `reading` turns terms into tests (a condition for the database beside the same in plain Python),
`asking` runs a query, `facets` says what else the matches have, and `editing` changes the text.
"""
