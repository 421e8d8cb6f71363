"""What `record` wrote: traces of allocation calls."""
