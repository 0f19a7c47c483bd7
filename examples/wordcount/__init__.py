"""A word count on a shared group: the words of this project's documents, counted in SQLite by two Spark drivers."""
