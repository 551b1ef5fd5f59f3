"""The Owner and the Processors of TiCDC: who replicates which table (seed: `ticdc_distributed_scheduling.md`)."""
