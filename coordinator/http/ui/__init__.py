"""The operators' page: what a browser gets at `/`. `files` serves it, `static` is ours, `vendor` are libraries."""
