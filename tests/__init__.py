"""Tests, by kind: unit mirrors the tree; conformance, real_etcd, integration and e2e use real parts."""
