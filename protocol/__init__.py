"""The words on the wire: models of requests and answers, the error table, routes, ids, the group hash.

Pure: this package knows no clock, no chance, no I/O and no logging. Both sides of the wire import it, so a word
changed here changes for the service, the Python member, the Spark bridge and the OpenAPI document at once.
"""
