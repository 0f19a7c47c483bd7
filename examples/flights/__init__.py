"""The demo: a year of flights, divided between two Spark drivers, one of which is killed. See docs/demo.md."""
