"""silver.items"""

from declarations.items import ITEMS
from expectations.silver import latest, unless_deleted
from expectations.suites import Severity

ITEMS_SUITE = latest(
    ITEMS,
    unless_deleted("price_is_not_negative", "price >= 0"),
    unless_deleted("price_is_plausible", "price <= 100000", Severity.WARNING),
    unless_deleted("name_is_there", "length(name) > 0", Severity.WARNING),
    unless_deleted(
        "created_in_this_age", "created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY", Severity.WARNING
    ),
)
