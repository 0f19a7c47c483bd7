"""The cluster as a node takes part in it: who lives, who owns what, and what this node takes or hands over."""
