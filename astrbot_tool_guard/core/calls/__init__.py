"""A model's answers: from the pieces of a stream to checked calls, and what follows.

Pure, and above `schemas`. Import `assemble` from `answers`; the rest serves it and the host.
"""
