"""Endpoints: where a ready replica answers, as routers read them from etcd."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Endpoint(BaseModel):
    """One ready replica. Priority 0 is the best; weight is relative within a priority.

    `served_model_name` is what the engine was started with; clients say `model` or an alias.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    replica_id: str
    url: str
    model: str
    aliases: tuple[str, ...] = Field(default=(), strict=False)
    served_model_name: str
    engine: str
    pool: str = ""
    node_id: str = ""
    weight: int = Field(default=1, ge=0)
    priority: int = Field(default=0, ge=0)
