"""Commands that change a group. What loses something is a dry run without `--execute`."""
