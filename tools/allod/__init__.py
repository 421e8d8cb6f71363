"""What a user runs: programs on Allod, and what shows their heaps."""
