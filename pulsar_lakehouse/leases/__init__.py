"""Who may write a table: leases, the turns at them, claims in an object store, and the home of a folder."""
