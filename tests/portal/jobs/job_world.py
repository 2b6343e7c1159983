"""A world without rescues, whose orders are carried out by hand."""

from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder
from tests.portal.rescue.world import World


class JobWorld(World):
    """Everything moves only when the test says so."""

    def order(self, action: str = "restart", name: str = "llm", kind: str = "PyTorchJob", **more: object) -> JobOrder:
        given = {"requested_by": "ann", "reason": "it hangs", **more}
        return services.order(
            self.cluster, kind=kind, namespace="train", name=name, action=action, now=self.now, **given
        )

    def work(self) -> None:
        for pk in JobOrder.objects.filter(state="running", due_at__lte=self.now).values_list("pk", flat=True):
            services.run(pk, clock=self.clock)

    def until_settled(self, order: JobOrder, *, rounds: int = 60) -> JobOrder:
        for _ in range(rounds):
            self.work()
            order.refresh_from_db()
            if order.state != "running":
                return order
            self.pass_time()
        raise AssertionError(f"order is {order.state}: {order.why}")
