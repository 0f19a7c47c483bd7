"""`rallypoint offsets`: what a group has committed, and changes of it."""
