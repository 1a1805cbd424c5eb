"""The only place that knows AstrBot, the OpenAI SDK and wrapt.

What is decided stands in `core`; here it meets the functions of the host:
`seams` wraps them, `guard` says which and with what, and each stage of the guard
is a module of its own.
"""
