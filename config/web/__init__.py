"""The web server: an event loop receives requests and sends responses, threads run the WSGI application.

A thread starts on a request when all of it has arrived, and ends with a response that nobody has read yet. So a slow
client occupies a connection and no thread. docs/decisions/0026-slow-clients.md says why.
"""
