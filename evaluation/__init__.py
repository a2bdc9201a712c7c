"""The demo agent and the measurements: programs beside the product, which they know from outside.

They speak HTTP to it and import none of its rooms, with two exceptions of the benchmark, each named in its own file: it
fills tables by SQL, and the sixty-four who decide call the pages' verbs in a process of their own.
"""
