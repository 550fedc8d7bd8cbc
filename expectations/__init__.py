"""What must hold of each table, one suite a table, and the report on it."""

import os

# Great Expectations, which some modules import, tells nobody what is done with it.
os.environ["GX_ANALYTICS_ENABLED"] = "false"
