"""The data plane: it proxies client requests to ready engines."""
