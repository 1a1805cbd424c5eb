"""AstrBot's agent loop: which run the code is in, and what is wrapped of it.

Above `seams` and `stages`. Import the wrappers' classes from their modules, for `guard` alone.
"""
