"""The whole system on one machine, as real processes."""
