"""What every simulated or running node is: a pure machine, its leases, and the time that it sees."""
