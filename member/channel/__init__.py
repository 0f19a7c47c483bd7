"""The member's side of channels: WebSockets with the nodes, and the pool in which members share them."""
