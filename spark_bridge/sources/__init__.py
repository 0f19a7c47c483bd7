"""Where records come from: one contract, one module for each kind of source, and the finder of plug-ins."""
