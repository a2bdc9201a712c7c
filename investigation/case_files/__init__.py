"""Case files: what an incident, a search or a session shows, as one document with its proofs."""
