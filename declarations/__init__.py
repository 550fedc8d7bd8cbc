"""What this lakehouse is made of: its topics, and the tables that are made of them."""
