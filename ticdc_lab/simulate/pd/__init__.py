"""PD's decisions as pure functions: placement, balance and repair, each with its reason (seed: tidb_pd_scheduling)."""
