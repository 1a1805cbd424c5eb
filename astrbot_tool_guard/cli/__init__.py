"""The command line's parts, below `__main__`; nothing here needs AstrBot or a network.

At the top, for `__main__` alone. Each command's module is loaded when it is asked for.
"""
