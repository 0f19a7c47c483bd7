"""The hands: clock, timers, lanes, shards, the service. They wait, retry and order; what to do is the core's business.

`service.Service` is what the door and main use; DESIGN.md says how a call travels.
"""
