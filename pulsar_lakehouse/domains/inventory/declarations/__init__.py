"""The tables of the database, and what is made from them."""
