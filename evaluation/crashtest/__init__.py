"""The evaluation of the paper's section 9: crashes around effects, and races, on every substrate.

It uses Gatebook over HTTP only. One module runs inside the server under trial (`server_hooks`).
"""
