"""The declarations of this lakehouse: its topics, and the tables that are made from them."""
