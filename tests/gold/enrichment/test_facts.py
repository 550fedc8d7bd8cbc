from pyspark.sql import SparkSession

from gold.enrichment.facts import failed_rules


def test_a_rule_that_is_not_true_of_a_row_is_named(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 5), (-1, 5), (-1, None), (None, None)], "price INT, weight INT")
    rules = {"price_is_positive": "price > 0", "weight_is_known": "weight IS NOT NULL", "is_dense": "weight > price"}
    assert [row[0] for row in rows.select(failed_rules(rules)).collect()] == [
        "",
        "price_is_positive",
        "price_is_positive, weight_is_known, is_dense",
        "price_is_positive, weight_is_known, is_dense",
    ]
