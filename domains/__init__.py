"""Domains: each is a project with declarations, a workload and example queries, which `lakehouse demo` runs."""
