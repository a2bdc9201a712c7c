"""API endpoints, one module per kind of object."""
