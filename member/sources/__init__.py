"""Sources for consumers, and where topics can be asked for. Each product is known to the one file named after it."""
