"""What a cluster costs: three nodes on three members of etcd, all of them processes of this machine.

`parts` starts and measures the processes, `residents` are the members, a program of its own, `scenarios` says what is
measured, `metrics` what comes of it, `tables` how that looks.
"""
