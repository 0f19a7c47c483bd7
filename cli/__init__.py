"""The `rallypoint` command: words in, words out. What it starts lives in the other packages."""
