"""Real parts together, over loopback."""
