"""`rallypoint cluster`: shows the nodes of a cluster and who coordinates what, and moves it by hand.

It speaks the HTTP API alone, to any node.
"""
