"""Which service a command speaks to: flags over the environment over the contexts of a file."""
