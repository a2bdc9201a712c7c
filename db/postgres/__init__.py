"""Django's PostgreSQL backend with a pool that outlives the server: ENGINE "db.postgres"."""
