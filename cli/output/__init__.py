"""How answers are shown: tables, JSON, CSV, names. Pure but for `terminal`: nothing here calls a service."""
