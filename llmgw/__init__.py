"""llmgw: a self-hosted gateway for large language models, with a control plane that stays up."""

__version__ = "0.1.0"
