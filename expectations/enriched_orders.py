"""gold.enriched_orders"""

from declarations.orders import ORDERS
from expectations.gold import enriched
from expectations.suites import Severity, each_row

ENRICHED_ORDERS_SUITE = enriched(
    ORDERS,
    each_row("user_is_its_own_or_what_that_was_merged_into", "user.id = user_id OR user_merged[0] = user_id"),
    each_row("item_is_its_own", "item.id = item_id"),
    each_row("state_was_not_deleted_before", "coalesce(least(user.deleted_at, item.deleted_at) > created_at, true)"),
    each_row("created_in_this_age", "created_at BETWEEN '2000-01-01' AND now() + INTERVAL 1 DAY", Severity.WARNING),
    each_row("is_of_its_day", "order_date = to_date(created_at)"),
    each_row("price_is_plausible", "price BETWEEN 0 AND 100000", Severity.WARNING),
    each_row("paid_within_a_month", "paid_at IS NULL OR paid_at < created_at + INTERVAL 31 DAYS", Severity.WARNING),
)
