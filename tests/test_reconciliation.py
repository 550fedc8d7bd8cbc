from pulsar_lakehouse.reconciliation import Reconciliation


def test_a_topic_in_balance_is_an_equation() -> None:
    balance = Reconciliation(topic="orders", landed=1_003, accounted={"enriched": 1_002, "waiting": 1})
    assert str(balance) == "orders: 1,003 landed = 1,002 enriched + 1 waiting"


def test_one_that_is_not_says_why() -> None:
    balance = Reconciliation(topic="orders", landed=3, accounted={"enriched": 2}, problems=("1 lost: 0:5:0:1",))
    assert str(balance) == "orders: 3 landed ≠ 2 enriched; 1 lost: 0:5:0:1"


def test_what_compaction_had_kept_is_told() -> None:
    balance = Reconciliation(topic="stores", landed=3, accounted={"current": 3}, compacted=2)
    assert str(balance) == "stores: 3 (2 kept by compaction) landed = 3 current"
