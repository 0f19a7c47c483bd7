"""The rules of a group: `decide` derives facts and effects from a command, `apply` writes the facts into the state.

Pure: no clock, no chance, no I/O, no logging. Time, ids and limits come in as arguments, so that the same commands
give the same group in a test, in a simulation and in the service.
"""
