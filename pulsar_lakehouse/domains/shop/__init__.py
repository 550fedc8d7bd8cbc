"""A shop: orders, joined with the users who made them and the items at the price of that time."""
