"""What one client may take: connections, time, and its share of each turn of the event loop."""
