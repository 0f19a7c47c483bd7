"""Placement beside group assignment: a record's partition (`partitioners`), and a partition's replicas (`replicas`)."""
