"""Models that this package can make itself, and the exact tokens of a growing chat."""
