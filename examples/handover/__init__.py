"""One story for all examples: two Spark drivers share a topic, one is killed, the other takes over.

`run` plays it and `story` decides; `books`, `ownership` and `service` are looked at, `processes` are started; `screen`,
`terminal`, `picture`, `report` and `closing` show it. What is read and where it goes is each example's own.
"""
