"""The `rallypoint` command: parses arguments, calls the other packages, and prints the results."""
