"""Leader election, fencing, watching and clocks, for any program that needs exactly one leader.

`ha` knows nothing of what the leader does. See `ha.elector` for the state machine's shell,
`ha.core` for the decisions, `ha.store` for what a store must promise, and `ha.etcd` for the one
store this project leads by.
"""
