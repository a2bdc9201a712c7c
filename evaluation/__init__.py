"""The demo agent and the measurements: programs beside the product, which they know from outside.

They speak HTTP to it and import none of its rooms, with three exceptions, each named in its own
file: the benchmark fills tables by SQL, and its sixty-four who decide call the pages' verbs in a
process of their own; and one module of the rig stands inside the server that the rig starts, where
it moves the clock, lets it fall and puts faults in.
"""
