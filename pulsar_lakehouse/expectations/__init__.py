"""The rules of each table, one suite per table, and the report on their results."""

import os

# Turns off the usage reports of Great Expectations, which some modules import.
os.environ["GX_ANALYTICS_ENABLED"] = "false"
