"""TLS of the API: the handshake of a connection, whose certificate came with it, and the files that all of this is of.

How TLS works is OpenSSL's; nothing here chooses ciphers.
"""
