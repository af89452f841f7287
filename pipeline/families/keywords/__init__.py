"""Topics with keywords, on the driver."""
