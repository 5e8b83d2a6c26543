"""The admin listener: what people and routers ask of a control plane over HTTP."""
