"""What lands for the payments, and the tables that are made from it."""
