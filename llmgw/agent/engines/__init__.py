"""The engines this agent knows: one small class each.

An engine says what to run for a shard, tells loading from ready, and whether this node has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw.agent.engines.command import CommandEngine
from llmgw.agent.engines.llamacpp import LlamaCppEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgw.agent.engines.base import Engine


def known_engines() -> Mapping[str, Engine]:
    """Every engine, by name; whether it is installed is the engine's to say."""
    return {engine.name: engine for engine in (CommandEngine(), LlamaCppEngine())}


def installed_engines() -> Mapping[str, Engine]:
    """The engines that can be started on this node, by name."""
    return {
        name: engine
        for name, engine in known_engines().items()
        if engine.installation() is not None
    }
