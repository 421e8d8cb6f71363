"""The allocators that the laboratory builds itself: recipes, sources and their build."""
