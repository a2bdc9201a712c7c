"""The evaluation: demo agent, benchmark and crash tests, which use the product from outside.

They use HTTP and import no app of the product, with three exceptions, each documented in its file:
the benchmark fills tables by SQL; its sixty-four reviewers call the functions of the pages in a
separate process; and one module of the crash tests runs inside their server, where it moves the
clock, crashes the server and injects faults.
"""
