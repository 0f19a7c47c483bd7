"""Benchmarks: one command measures the service over real HTTP, and writes the machine beside the numbers.

The service runs as a process of its own on SQLite; this process is its load. What is counted is the service's CPU
time, so that the load may be written in Python too. Nothing here is imported by the product, and nothing here is a
timed test: a figure is for a person to read.

`main` is the command, `scenarios` says what is measured, `metrics` computes the results, `report` how it looks; `kafka`
has the same loads for a broker, and `spark` Spark's drivers.
"""
