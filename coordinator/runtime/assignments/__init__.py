"""Assignments as text to the rules, and read here: the owner of a partition, previews, subscriptions of consumers."""
