"""What tests, `make demo` and `make run` stand on: a model server and a bot.

Nothing here is part of the plugin, and nothing of it is packaged.
"""
