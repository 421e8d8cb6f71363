"""The front door of Allod: what `./allod` does."""
