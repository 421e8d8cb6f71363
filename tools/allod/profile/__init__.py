"""Heap profiles: what the library writes, with names, for pprof and for people."""
