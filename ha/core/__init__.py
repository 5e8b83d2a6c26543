"""PURE decisions of `ha`: who leads, until when, and where a watch resumes."""
