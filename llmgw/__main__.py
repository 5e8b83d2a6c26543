"""`python -m llmgw`: the same program as the `llmgw` command."""

from __future__ import annotations

from llmgw.cli import main

if __name__ == "__main__":
    main()
