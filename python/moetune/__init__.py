"""moetune's Python side: a host for kernels that live in Python (moetune.host)."""
