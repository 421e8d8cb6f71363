"""The side-by-side comparison: workloads, peers, runs, statistics, report."""
