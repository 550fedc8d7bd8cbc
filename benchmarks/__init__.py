"""Measurements that anyone can run. Machines differ and are noisy: what counts are the ratios within one run."""
