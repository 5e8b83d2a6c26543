"""The layout of etcd: every key under `/llmgw/<cluster>/`, names percent-encoded.

A prefix ends in `/`, always: `endpoints/a` must never be read together with `endpoints/ab`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote


def encode(name: str) -> str:
    """A name as one path segment."""
    return quote(name, safe="")


def decode(segment: str) -> str:
    """The name that `encode` was given."""
    return unquote(segment)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one cluster."""

    cluster: str = "default"

    @property
    def root(self) -> str:
        """The prefix of everything."""
        return f"/llmgw/{encode(self.cluster)}/"

    @property
    def leader(self) -> str:
        """Who leads: id, term, agent and admin address. Bound to the leader's lease."""
        return f"{self.root}leader"

    @property
    def term(self) -> str:
        """The counter of leaderships."""
        return f"{self.root}term"

    @property
    def candidates(self) -> str:
        """Prefix: control planes that are up, each bound to its own lease."""
        return f"{self.root}candidates/"

    @property
    def catalog(self) -> str:
        """Prefix: head and documents."""
        return f"{self.root}catalog/"

    @property
    def catalog_head(self) -> str:
        """What is in force."""
        return f"{self.catalog}head"

    @property
    def catalog_documents(self) -> str:
        """Prefix: immutable documents by hash."""
        return f"{self.catalog}docs/"

    def catalog_document(self, document_hash: str) -> str:
        """One document."""
        return f"{self.catalog_documents}{document_hash}"

    @property
    def roster(self) -> str:
        """Prefix: nodes known to the cluster."""
        return f"{self.root}roster/"

    def roster_node(self, node_id: str) -> str:
        """One node of the roster."""
        return f"{self.roster}{encode(node_id)}"

    @property
    def endpoints(self) -> str:
        """Prefix: ready replicas. These keys have no lease: they outlive a leader."""
        return f"{self.root}endpoints/"

    def endpoint(self, replica_id: str) -> str:
        """One replica's endpoint."""
        return f"{self.endpoints}{encode(replica_id)}"
