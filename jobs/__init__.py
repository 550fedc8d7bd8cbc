"""Entry points: what reads, transforms and writes, from the shell or by spark-submit."""
