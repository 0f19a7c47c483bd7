"""`rallypoint top`: the groups that need a look, live, on one screen."""
