"""Who a caller is, and what it may do: the rules of `coordinator.access`, asked for requests, channels and streams.

The files are read again here, and what the rules refuse or change goes to the audit log.
"""
