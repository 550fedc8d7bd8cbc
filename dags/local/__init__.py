"""A local Airflow, for those without one."""
