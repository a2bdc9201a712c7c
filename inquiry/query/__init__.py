"""The query language of the URL, API, saved searches, alerts and command line.

`syntax` parses the text (with `characters`, `conditions` and `stages`) into a `tree`.
`entities` is the registry of everything you can search. `reading` compiles terms into tests: a
condition for the database and the same test in plain Python.
`asking` executes a query, `facets` lists other values of the matches, and `editing` changes the
text.
"""
