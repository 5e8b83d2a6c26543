"""The only place that speaks to etcd."""
