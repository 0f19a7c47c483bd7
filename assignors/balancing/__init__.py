"""The balance that `sticky` and `cooperative-sticky` share: as even as possible, and with the fewest moves at that.

`balance` decides how many partitions of each class a member gets, `from_counts` which ones. `partition_classes` groups
interchangeable partitions, `owned_partitions` decides which owned partitions count, `assignment_counts` is the flow
network, `cheapest_paths` and `negative_cycles` are the algorithms on it. assignors/DESIGN.md explains them.
"""
