"""What crosses a process boundary: generated code, conversions, etcd documents, the gRPC link."""
