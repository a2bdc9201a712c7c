"""Names that plans used: hosts, addresses, accounts, repositories, clusters, data stores."""
