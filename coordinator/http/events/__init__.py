"""`GET /v1/events`: who may have an event stream, one of them, and events as text."""
