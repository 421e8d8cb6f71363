"""What builds and tests Allod."""
