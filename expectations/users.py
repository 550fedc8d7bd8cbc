"""silver.users"""

from declarations.users import USERS
from expectations.silver import latest, unless_deleted
from expectations.suites import Severity

USERS_SUITE = latest(
    USERS,
    unless_deleted("created_at_is_there", "created_at IS NOT NULL"),
    unless_deleted(
        "created_in_this_age", "created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY", Severity.WARNING
    ),
    unless_deleted(
        "email_is_an_address",
        "email_address IS NULL OR email_address RLIKE '^[^@ ]+@[^@ ]+[.][^@ ]+$'",
        Severity.WARNING,
    ),
    unless_deleted("merged_into_another", "merged_at IS NULL OR parent_user_id != id", Severity.WARNING),
)
