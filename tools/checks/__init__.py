"""Checks of the code and of the products, each a script of its own."""
