"""Programs that show Rallypoint at work. Nothing of the product imports them."""
