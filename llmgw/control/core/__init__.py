"""PURE decisions of the control plane: state and time in, plans out."""
