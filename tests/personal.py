"""A project with personal data: the shop, whose users have some."""

import shutil
from pathlib import Path

from pulsar_lakehouse.settings import SHIPPED

BY_EMAIL = """-- keys: email
-- refresh: full
SELECT user.email_address AS email, count(*) AS orders, max(user.last_name || '!') AS name
FROM gold.enriched_orders GROUP BY user.email_address
"""


def declare_personal(folder: Path) -> Path:
    """The folder with the declarations of the shop, in which the last name and the address of users are personal."""
    declared = folder / "declarations"
    shutil.copytree(SHIPPED, declared)
    users = declared / "users.py"
    personal = 'pii=("last_name", "email_address"),\n    deleted_at='
    users.write_text(users.read_text().replace("deleted_at=", personal))
    (declared / "sql" / "orders_by_email.sql").write_text(BY_EMAIL)
    return declared
