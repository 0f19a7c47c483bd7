"""What any node answers for all: this node asks the others over HTTP, and joins what they say to one answer."""
