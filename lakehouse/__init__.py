"""What all layers share: settings, declarations, the Spark session, the embedded broker."""
