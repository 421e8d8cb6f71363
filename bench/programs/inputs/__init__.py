"""What real programs read: text that is made here, the same each time."""
