"""Members as the runtime sees them: the connection that carries each, and which requests count as signs of life."""
