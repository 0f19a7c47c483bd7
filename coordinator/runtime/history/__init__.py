"""What this node remembers of its groups since it loaded them: commits, lag, owners. Lost with the group, bounded."""
