"""OpenAI's Chat Completions: the SDK's objects, and AstrBot's adapters that send through them.

Import what the stages need from `stream` and `answers`.
"""
