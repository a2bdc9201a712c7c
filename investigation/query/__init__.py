"""The query language of the URL, API, saved searches, alerts and command line.

`parser` turns the text into a syntax tree. `entity_registry` names everything you can
search; `registry` and `fields` hold its fields. `compiler` turns terms into tests: a condition for
the database and the same test in plain Python. `execute` runs a query, `facets` lists other values
of the matches, and `edit` changes the text.
"""
