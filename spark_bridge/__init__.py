"""Spark streaming queries as members of a consumer group. Users import `rallypoint.spark`, and nothing from here.

`DESIGN.md` tells how a batch travels.
"""
