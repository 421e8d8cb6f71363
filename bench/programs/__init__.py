"""Real programs with real work, each run by one script under a given malloc."""
