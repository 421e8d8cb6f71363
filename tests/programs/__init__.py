"""Real programs doing real work on the library, compared with the C library."""
