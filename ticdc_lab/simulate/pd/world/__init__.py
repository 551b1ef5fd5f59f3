"""A whole cluster: PD with simulated stores, in virtual time and with one source of chance."""
