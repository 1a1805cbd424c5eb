"""The protocols that AstrBot's adapters speak, behind one small interface.

A module or folder each: how its requests and answers are read, and written back.
"""
