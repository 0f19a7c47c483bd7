"""Who may do what: principals, the policy file and tokens, as rules alone.

No I/O, no clock and no randomness: texts, times and random keys come in as arguments. `coordinator.http.access` asks
these rules for each request, and reads the files.
"""
