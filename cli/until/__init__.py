"""Commands that wait for a group, or judge it: `wait`, `check` and `deploy`."""
