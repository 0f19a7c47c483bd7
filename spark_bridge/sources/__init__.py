"""Sources of records: the contract, the built-in sources `files` and `kafka`, and the registry of plug-ins."""
