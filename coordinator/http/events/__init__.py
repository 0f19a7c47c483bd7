"""`GET /v1/events`: the limits of event streams, one stream, and events as text."""
