"""The rules of tool calls, as pure functions over plain data.

Nothing here imports AstrBot, the OpenAI SDK or wrapt; nothing reads a clock,
writes a log or draws a random number. What is decided here is returned as
data, and takes effect at the edge (`astrbot_tool_guard.host`, the command line).
"""
