"""Where the seams are in the AstrBot versions we support, as data.

The rule: what differs between versions is said here and nowhere else. Supported
are AstrBot 4.26.6 up to 5; every seam has one shape there, or is absent.
"""

from __future__ import annotations

from .seams import Seam

_OPENAI = "astrbot.core.provider.sources.openai_source"
_RESPONSES = "astrbot.core.provider.sources.openai_responses_source"
_RUNNER = "astrbot.core.agent.runners.tool_loop_agent_runner"

CREATE = Seam(
    "sdk request",
    "openai.resources.chat.completions",
    "AsyncCompletions.create",
    "function",
    ("messages", "model", "stream", "tools", "extra_body", "timeout"),
)
QUERY = Seam(
    "provider request",
    _OPENAI,
    "ProviderOpenAIOfficial._query",
    "coroutine",
    ("payloads", "tools"),
)
QUERY_STREAM = Seam(
    "provider stream",
    _OPENAI,
    "ProviderOpenAIOfficial._query_stream",
    "async_generator",
    ("payloads", "tools"),
)
API_ERROR = Seam(
    "provider errors",
    _OPENAI,
    "ProviderOpenAIOfficial._handle_api_error",
    "coroutine",
    ("e",),
)
RESPONSES_API_ERROR = Seam(
    "responses errors",
    _RESPONSES,
    "ProviderOpenAIResponses._handle_api_error",
    "coroutine",
    ("error",),
    optional=True,  # the adapter came with 4.27.1
)
RESET = Seam(
    "run start",
    _RUNNER,
    "ToolLoopAgentRunner.reset",
    "coroutine",
    ("provider", "request", "run_context"),
)
LLM_RESPONSES = Seam(
    "model answers",
    _RUNNER,
    "ToolLoopAgentRunner._iter_llm_responses",
    "async_generator",
)
FALLBACK = Seam(
    "provider fallback",
    _RUNNER,
    "ToolLoopAgentRunner._iter_llm_responses_with_fallback",
    "async_generator",
)
STEP = Seam(
    "agent step",
    _RUNNER,
    "ToolLoopAgentRunner.step",
    "async_generator",
)
HANDLE_TOOLS = Seam(
    "tool calls",
    _RUNNER,
    "ToolLoopAgentRunner._handle_function_tools",
    "async_generator",
    ("req", "llm_response"),
)
