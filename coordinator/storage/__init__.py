"""The memory: one small contract, its codec, and an engine a file."""
