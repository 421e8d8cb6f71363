"""Measurements of Allod beside other allocators."""
