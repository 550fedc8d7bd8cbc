"""A ledger: transactions, joined with their customers and accounts, and balances in windows.

The data has the form of that of https://github.com/polyzos/stream-processing-with-apache-flink.
"""
