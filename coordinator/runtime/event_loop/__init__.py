"""The event loop: its clock, timers, tasks that survive faults, a worker thread, and calls ended some at a time."""
