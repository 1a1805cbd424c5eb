"""The commands: what an administrator asks in a chat, and the answers as text.

At the top, for `main.py` alone. Import `Commands` from `commands` and `Chat` from `chat`.
"""
