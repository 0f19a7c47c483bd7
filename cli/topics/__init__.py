"""`rallypoint topics`: the registry of topics."""
