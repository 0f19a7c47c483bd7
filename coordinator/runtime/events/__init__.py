"""The events of groups that readers can still get, and how many bytes they take."""
