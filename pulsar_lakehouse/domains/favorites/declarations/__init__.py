"""The topics of favorites, and the tables that are made from them."""
