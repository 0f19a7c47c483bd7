"""`rallypoint assign`: computes an assignment offline. Nothing here calls a service or changes a group.

`questions` defines the JSON input, `algorithms` the algorithms that answer it, `report` measures and formats a group's
assignment, `lines` processes a stream of inputs, `command` is the command line.
"""
