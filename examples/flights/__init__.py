"""The demo: a year of flights, shared out between two Spark drivers, one of which is killed. See docs/demo.md."""
