"""Web server: an event loop receives and sends, threads run the WSGI application.

A thread starts on a request when all of it has arrived, and ends with a complete response that the
client need not have read. A slow client therefore occupies a connection and no thread.
docs/decisions/0026-slow-clients.md explains why.
"""
