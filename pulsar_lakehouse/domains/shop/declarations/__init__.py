"""The shop's topics, and the tables that are made from them."""
