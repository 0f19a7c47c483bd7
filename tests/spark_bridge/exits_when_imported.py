"""A module that ends the process that imports it, as a script does without the usual guard."""

raise SystemExit(7)
