"""From the bytes of a request to a model: routes, bodies, queries, and the limits of what they contain."""
