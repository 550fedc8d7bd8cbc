"""A local Airflow, for who has none."""
