"""What an operator decided: the settings, what each takes, and each session's own.

On the ground beside `core`; imports nothing of the package. Import `Settings` from `settings`.
"""
