"""The processes of a server on a Ray cluster, as deployments of Ray Serve.

Fronts answer HTTP requests and decode images. Each passes a stream's images to the replica that Ray
Serve chooses by a hash of the stream's name. All replicas save to one folder.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import ray
from prometheus_client.core import Metric
from ray import serve
from ray.serve._private import replica as replica_module
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from torch import Tensor

from dab.serve.app import Served, application
from dab.serve.backend import Overview, Prediction
from dab.serve.build import Plan, create
from dab.serve.limits import Limits
from dab.serve.logs import log_as_json
from dab.serve.ray_backend import RayBackend
from dab.serve.shared_folder import SharedFolder
from dab.serve.shared_service import SharedService
from dab.utils.imports import import_own
from dab.utils.web.server import LOOPBACK

__all__ = ["APPLICATION", "Front", "Streams", "deployed"]

APPLICATION = "dab"
ONGOING = 1_000_000  # requests; the limits of the fronts are reached first
SAVING = 60.0  # seconds that a replica has to save its streams when it is stopped
HEALTH = 2.0  # seconds between two checks that a replica lives
BY_STREAM = {
    "request_router_class": "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter",
    "request_router_kwargs": {"num_fallback_replicas": 0},
}


def keep_to_loopback() -> None:
    """On a cluster of this machine alone, open no port to others.

    When it has been created, a replica of Ray Serve starts a gRPC server on all interfaces, for
    requests that are not sent in this way here, and unpickles what it receives. There is no option
    for its address.
    """
    untyped: Any = replica_module
    if ray.util.get_node_ip_address() == LOOPBACK:  # type: ignore[no-untyped-call]
        bind = untyped.add_port_to_grpc_server
        untyped.add_port_to_grpc_server = lambda server, _: bind(server, f"{LOOPBACK}:0")


class Streams:
    """A replica: the model, and some of the streams."""

    def __init__(self, plan: Plan, imports: Sequence[str], log_level: str) -> None:
        keep_to_loopback()
        for module in imports:
            import_own(module)
        log_as_json(log_level)
        assert plan.folder is not None
        folder = SharedFolder(plan.folder)
        fleet, _ = create(plan, folder)
        self.id = folder.id
        self.service = SharedService(fleet, folder, limits=plan.limits, save_every=plan.save_every)

    async def predict(self, stream: str, images: Tensor) -> Prediction:
        return await self.service.predict(stream, lambda: images)

    async def details(self, stream: str) -> dict[str, Any]:
        return await self.service.details(stream)

    async def forget(self, stream: str) -> None:
        await self.service.forget(stream)

    async def forgotten(self, stream: str) -> None:
        self.service.forgotten(stream)

    async def let_go(self, stream: str, owner: str) -> None:
        if owner == self.id:
            await self.service.let_go(stream)

    async def overview(self) -> Overview:
        return await self.service.overview()

    async def collect(self) -> tuple[str, list[Metric]]:
        return self.id, self.service.collect()

    async def check_health(self) -> None:
        if not self.service.ready:
            raise RuntimeError("the model's thread has ended")

    def __del__(self) -> None:
        """Called by Ray Serve when it stops a replica in order."""
        self.service.close()


class Front:
    """The routes, which Ray Serve's proxies send requests to."""

    def __init__(
        self,
        streams: DeploymentHandle[Any],
        served: Served,
        limits: Limits,
        token: str | None,
        hosts: Collection[str],
        log_level: str,
    ) -> None:
        keep_to_loopback()
        log_as_json(log_level)
        self.id = serve.get_replica_context().replica_id.unique_id
        fronts = serve.get_deployment_handle(Front.__name__, APPLICATION)
        self.backend = RayBackend(streams, fronts, limits)
        self.application = application(self.backend, served, token=token, hosts=hosts)

    def __serve_build_asgi_app__(self) -> Starlette:
        return self.application

    async def collect(self) -> tuple[str, list[Metric]]:
        return self.id, list(self.backend.metrics.registry.collect())


def deployed(
    plan: Plan,
    served: Served,
    *,
    replicas: int,
    token: str | None,
    hosts: Collection[str],
    imports: Sequence[str],
    log_level: str,
) -> serve.Application:
    """The application, for `serve.run`."""
    streams = serve.deployment(
        num_replicas=replicas,
        max_ongoing_requests=ONGOING,
        graceful_shutdown_timeout_s=SAVING,
        health_check_period_s=HEALTH,
        request_router_config=BY_STREAM,
        ray_actor_options={
            "num_cpus": plan.threads or 1,
            "num_gpus": int(plan.device.startswith("cuda")),
        },
    )(Streams)
    fronts = serve.deployment(num_replicas=replicas, max_ongoing_requests=ONGOING)(
        serve.ingress()(Front)
    )
    replica = streams.bind(plan, imports, log_level)
    return fronts.bind(replica, served, plan.limits, token, hosts, log_level)
