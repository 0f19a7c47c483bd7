"""From an answer to the bytes of a response, small or large."""
