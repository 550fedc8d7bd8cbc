"""Code that all layers share: settings, contracts, Delta tables, the Spark session and the embedded broker."""
