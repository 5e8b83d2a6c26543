"""PURE decisions of the agent: transitions, admission of commands, whom to dial."""
