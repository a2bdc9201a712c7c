"""The evaluation that the paper's section 9 asks for: crashes around effects, and actors who meet,
on every substrate.

It knows Gatebook by HTTP alone, but for one module that runs inside the server under trial
(`inside`).
"""
