"""Payments: invoices of two topics, with the payments of the hour after them, their region and the risk of the card."""
