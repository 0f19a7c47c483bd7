"""The server: rules (`core`), memory (`storage`), hands (`runtime`), door (`http`), and `main`, which joins them."""
