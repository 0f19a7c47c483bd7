"""An exactly-once load into PostgreSQL: orders, two Spark drivers, one killed, and each order once in the table."""
