"""Sources for consumers, and their topics. Each product is known to the one file named after it."""
