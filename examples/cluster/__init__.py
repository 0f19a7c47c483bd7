"""A cluster on one machine: three nodes, three members of etcd, a load, faults, and an audit of etcd's whole history.

`demo` is the command. `run` plays the story with `servers` and `load`, which is a program of its own; `history` reads
etcd. `books`, `audit`, `pauses`, `picture` and `report` know no process, no network and no clock.
"""
