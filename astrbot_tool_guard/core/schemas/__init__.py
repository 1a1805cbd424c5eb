"""JSON Schema of a tool's parameters: read, compiled and asked within a bounded time.

Pure, and below `calls`. Import `ToolSchema` and `declared_tools` from `schema`.
"""
