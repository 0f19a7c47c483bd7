"""The server: the rules (`core`), `storage`, the `runtime`, the HTTP server (`http`), and `main`, which joins them."""
