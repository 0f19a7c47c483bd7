"""`rallypoint events`: what happens to groups, from all nodes."""
