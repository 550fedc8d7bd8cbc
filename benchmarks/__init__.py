"""Measurements that anyone can run. Machines differ and are noisy: compare only ratios within one run."""
