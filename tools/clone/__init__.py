"""The commands of a clone: what `./allod` does."""
