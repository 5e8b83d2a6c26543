"""The control plane: it leads, freezes or stands by, and when it leads it drives the agents."""
