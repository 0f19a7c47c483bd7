"""Storage: one small contract, its codec, and its engines, one in each file."""
