"""Broken input for each entry point, from the corpus and beyond; see `targets`."""
