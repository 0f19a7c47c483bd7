"""`etcd://HOST:PORT,…/PREFIX`: the store of several nodes, kept in etcd. `store.py` puts the parts together."""
