"""Agent frameworks whose tool calls are effects: one module for each.

The modules need the packages of their framework, for example `gatebook-client[pydantic-ai]`. Each
uses the framework's own extension point, and never calls a tool without permission. What they share
is in `tool_calls`.
"""
